"""Engines and KV that is split by layer, told one fact at a time."""

from collections.abc import Iterable

from nativecore import core
from policies.batching import PrefillFirst
from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.kv.handover import HandOverRules, HandOvers
from serving.kv.pieces import Piece
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.actions import Action, JoinBatch, Preempt, Run, Send, StopSend
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request
from tests.worlds.elastic_world import bare

LAYERS = 4
KV_BYTES = 8  # per token, of all layers
Prompt = tuple[int, int, tuple[int, int] | None]  # request, tokens, (giver, layers)


class Noting(Engine if core() == "interpreted" else object):  # type: ignore[misc]
    """An engine that notes how much memory was free when it was told that some was given back.

    Nothing can be derived from a native class: there nobody notes it.
    """

    told_free = 0

    def freed(self, actions: list[Action]) -> None:
        self.told_free = max(self.told_free, self.ledger.free_blocks)
        super().freed(actions)


class Rig:
    """Hand-overs between real engines. What a live pair would do is done by hand; sums are always checked.

    Answers leave out what engines run. ``whole_bytes``: KV of each request; ``origin``: (source, giver,
    bytes at the giver) of each.
    """

    def __init__(self, roles: Iterable[Role], kv_blocks: int = 16, kv_bytes: int = KV_BYTES) -> None:
        self.engines: dict[int, Engine] = {}
        for number, role in enumerate(roles):
            layers = LayerRange(0, LAYERS)
            replica = Replica(
                id=number,
                model="m",
                layers=layers,
                gpus=(number,),
                kv_blocks=kv_blocks,
                block_tokens=4,
                role=role,
            )
            kind = Noting if core() == "interpreted" else Engine
            self.engines[number] = kind(replica, PrefillFirst(8, 16), coalesce=False)
        self.requests: dict[int, Request] = {}
        self.kv_bytes = kv_bytes
        rules = HandOverRules(KvBytes(kv_bytes), 8)
        self.hand_overs = HandOvers(self.engines, self.requests, rules, TransferIds(), block_tokens=4)
        self.pieces = self.hand_overs.moves.pieces
        self.origin: dict[int, tuple[int, int, int]] = {}
        self.runs: dict[int, Run] = {}
        self.free = [kv_blocks for _ in self.engines]  # blocks, after the last event
        self.pending: list[int] = []  # numbers of sends that have not come
        self.closed = {number for number, engine in self.engines.items() if engine.hands_over}
        for number in sorted(self.engines.keys() - self.closed):
            self.hand_overs.open(number)

    def computed(self, source: int, *prompts: Prompt, output: int = 4) -> list[Action]:
        """A pass on the source has completed these; their memory is taken where their parts are."""
        engine, actions = self.engines[source], list[Action]()
        earlier = len(engine.outgoing)
        for id, tokens, elsewhere in prompts:
            request = self.requests[id] = Request(id, 0, tokens, output, "m")
            progress = Progress(request)
            progress.computed = tokens
            engine.ledger.reserve(id, tokens)
            self.origin[id] = source, source, 0
            if elsewhere is not None:
                giver, layers = elsewhere
                self.engines[giver].ledger.reserve(id, tokens)
                self.pieces.add((id,), engine, Piece(giver, LayerRange(0, layers)))
                self.origin[id] = source, giver, tokens * self.kv_bytes * layers // LAYERS
            engine.outgoing.append(progress)
        self.hand_overs.completed(engine, earlier, actions)
        return self.answer(actions)

    def sent(self, number: int, cause: str = "") -> tuple[int | None, list[Action]]:
        """A transfer ended: what ``HandOvers.sent`` says, and the actions."""
        actions: list[Action] = []
        if number in self.pending:
            self.pending.remove(number)
        source = self.hand_overs.sent(Sent(number, 0, cause), actions)
        return source, self.answer(actions)

    def switch_role(self, replica: int) -> list[Action]:
        """It decodes from now on."""
        actions: list[Action] = []
        self.engines[replica].switch_role("decode")
        self.closed.discard(replica)
        self.hand_overs.open(replica)
        self.hand_overs.match(actions)
        return self.answer(actions)

    def close(self, replica: int) -> None:
        self.closed.add(replica)
        self.hand_overs.close(replica)

    def lose(self, replica: int) -> tuple[list[int], list[Action]]:
        """As the service does: the requests that fail, and the actions but the engine's."""
        engine, actions = self.engines[replica], list[Action]()
        hand_overs = self.hand_overs
        hand_overs.close(replica)
        unsent = [one.id for one in engine.outgoing]
        kept = [*unsent, *(one.id for one in engine.attached), *engine.running]
        kept += [one.id for one in engine.waiting]
        failed = engine.lose([], "gone")
        failed += hand_overs.lost(replica, unsent, kept, actions)
        for request in failed:
            del self.requests[request]
        hand_overs.match(actions)
        return failed, self.answer(actions)

    def step(self, replica: int, finished: tuple[int, ...] = ()) -> list[Action]:
        """Its run ends after its one step."""
        engine, actions = self.engines[replica], list[Action]()
        engine.ran(Ran(replica, engine.epoch, 1, finished), actions)
        for request in finished:
            self.hand_overs.departed(replica, request)
            del self.requests[request]
        if (finished or engine.state is EngineState.IDLE) and self.hand_overs.waiting:
            self.hand_overs.match(actions)
        return self.answer(actions, replica)

    def answer(self, actions: list[Action], stepped: int = -1) -> list[Action]:
        sends = [one for one in actions if isinstance(one, Send)]
        self.pending += [send.transfer for send in sends]
        for stop in (one for one in actions if isinstance(one, StopSend)):
            assert stop.transfer in self.pending, "what has ended is not stopped"
        self.runs |= {one.replica: one for one in actions if isinstance(one, Run)}
        self.check_bytes(sends)
        self.check_books()
        began = {stepped, *(one.replica for one in actions if isinstance(one, Run | Preempt))}
        for number, engine in self.engines.items():
            before, self.free[number] = self.free[number], engine.ledger.free_blocks
            given = self.free[number] > before and number not in began
            if not isinstance(engine, Noting):
                continue
            if given and engine.state is not EngineState.LOST:
                assert engine.told_free >= self.free[number], "it may have waited for this memory"
            engine.told_free = 0
        return bare([one for one in actions if isinstance(one, Send | StopSend | JoinBatch)])

    def check_bytes(self, sends: list[Send]) -> None:
        """All of what is handed over is sent, but what the target has itself; of what is kept the rest."""
        wanted = 0
        for send in sends:
            for request in send.requests:
                source, giver, given_bytes = self.origin[request]
                if send.target == source:  # kept there
                    wanted += given_bytes
                elif send.source == source:
                    missing_bytes = given_bytes if giver == send.target else 0
                    wanted += self.requests[request].prompt_tokens * self.kv_bytes - missing_bytes
        assert sum(send.size_bytes for send in sends) == wanted
        assert all(send.size_bytes > 0 and send.source != send.target for send in sends)

    def check_books(self) -> None:
        """Sums are those of the requests, and no other request holds memory."""
        hand_overs, unsent, demand = self.hand_overs, 0, 0
        under_way = {one for number in self.engines for one in hand_overs.batch_to(number)}
        for number, engine in self.engines.items():
            room, coming = engine.replica.longest_request_tokens, hand_overs.batch_to(number)
            outgoing = [one.id for one in engine.outgoing]
            decoding = [*engine.running, *(one.id for one in (*engine.waiting, *engine.attached))]
            unsent += sum(one.known_tokens for one in engine.outgoing)
            kept = sum(hand_overs.need_tokens(self.requests[one], room) for one in {*coming, *decoding})
            assert hand_overs.demands.get(number, 0) == kept
            assert hand_overs.reserved_requests.get(number, 0) == len({*coming, *decoding})
            waiting = [one for one in outgoing if one not in under_way]
            demand += kept + sum(hand_overs.need_tokens(self.requests[one], room) for one in waiting)
            holders = {*outgoing, *coming, *decoding, *self.pieces.at(number)}
            holders.difference_update(one.id for one in engine.waiting)  # preempted
            assert set(engine.ledger.holders()) == holders
            assert not engine.outgoing or engine.state is not EngineState.LOST
        assert (hand_overs.migrating_tokens, hand_overs.demand_tokens) == (unsent, demand)


def send(number: int, requests: tuple[int, ...], source: int, target: int, size_bytes: int) -> Send:
    return Send(number, "kv", requests, source, target, size_bytes, "")
