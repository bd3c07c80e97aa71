"""KV on its way from prefill to decode instances of one model: who sends to whom, and when.

A prefill instance sends what it has completed as one batch at a time, a decode instance takes in one at a
time. Room for a request is kept for all the tokens it may have from the moment its KV is sent; that memory
is taken, and the source's given back, when the KV has come (OSDI 2025's artefact does the same).

| request           | completed | sent              | source lost | target lost      |
|-------------------|-----------|-------------------|-------------|------------------|
| at the source     | queue     | -                 | fails       | stays            |
| on its way        | -         | decodes at target | fails       | queued again     |
| whose KV has come | -         | refused           | decodes on  | fails: engine's  |
"""

from collections import deque
from collections.abc import Collection, Mapping

from serving.actions import Action, Send
from serving.engine import Engine
from serving.events import Sent
from serving.fact import fact
from serving.least_index import LeastIndex
from serving.progress import Progress
from serving.request import Request


@fact
class HandOverRules:
    """kv_bytes_per_token: of the model on all ranks together. most_requests: that decode on one instance."""

    kv_bytes_per_token: int
    most_requests: int


class Transfers:
    """The numbers of transfers, over all models of a controller."""

    __slots__ = ("_models", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._models: dict[int, str] = {}

    def begin(self, model: str) -> int:
        """The number of a new transfer."""
        number = self._next
        self._next = number + 1
        self._models[number] = model
        return number

    def model_of(self, number: int) -> str:
        """Whose it was; it is over, given up or not."""
        return self._models.pop(number)


@fact
class _Transfer:
    source: int
    target: int
    batch: tuple[Progress, ...]


class HandOvers:
    """The transfers of one model, and the room kept on its decode instances."""

    __slots__ = (
        "_block_tokens", "_engines", "_listed", "_needs", "_numbers", "_open", "_ready", "_receiving",
        "_requests", "_room", "_rules", "_transfers", "demand_tokens", "demands", "migrating_tokens",
        "sending",
    )  # fmt: skip

    def __init__(
        self,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        rules: HandOverRules,
        numbers: Transfers,
        block_tokens: int = 1,
    ) -> None:
        self._block_tokens = block_tokens
        self._engines = engines
        self._requests = requests
        self._rules = rules
        self._numbers = numbers
        self._ready: deque[int] = deque()  # sources with something to send, the longest waiting first
        self._open = LeastIndex({})  # decode instances that may be sent to now, by demand
        self._listed = 0  # how many those are
        self._room: dict[int, int] = {}  # of each decode instance that takes requests, in tokens
        self._receiving: set[int] = set()
        self._transfers: dict[int, _Transfer] = {}
        self.sending: dict[int, int] = {}  # source -> transfer
        self.demands: dict[int, int] = {}  # decode instance -> tokens that room is kept for
        self._needs: dict[int, int] = {}  # tokens of room, of everybody whose prompt is computed
        self.demand_tokens = 0  # the sum of demands, and of those completed whom nobody has room for yet
        self.migrating_tokens = 0

    def open(self, replica: int) -> None:
        """A decode instance takes requests from now on."""
        room = self._engines[replica].replica.longest_request_tokens
        self._room[replica] = room
        self.demands.setdefault(replica, 0)
        if replica not in self._receiving:
            self._list(replica)
        if replica in self._ready:
            self._ready.remove(replica)
            self._has_more(replica)

    def close(self, replica: int) -> None:
        """It takes no new ones; what is on its way still comes."""
        if self._room.pop(replica, None) is not None and replica not in self._receiving:
            self._unlist(replica)

    def need_tokens(self, request: Request, room: int) -> int:
        """Room that a request takes: prompt and reserved output, at least a seat's part of the memory.

        Whole blocks, for the last one is not shared: else the memory may be short of what was kept.
        """
        least, block = -(-room // self._rules.most_requests), self._block_tokens
        tokens = request.prompt_tokens + (request.reserved_tokens or request.max_new_tokens)
        need = -(-tokens // block) * block
        if need < least:
            need = least
        return need if need < room else room

    def completed(self, engine: Engine, earlier: int, actions: list[Action]) -> None:
        """A pass has completed prompts: all of ``engine.outgoing`` after the first ``earlier`` of them."""
        outgoing, requests, source = engine.outgoing, self._requests, engine.id
        room = engine.replica.longest_request_tokens
        for position in range(earlier, len(outgoing)):
            request = requests[outgoing[position].id]
            self.migrating_tokens += request.prompt_tokens
            self._needs[request.id] = need = self.need_tokens(request, room)
            self.demand_tokens += need
        if source not in self.sending and source not in self._ready:
            self._has_more(source)
        if self._ready:
            self.match(actions)

    def match(self, actions: list[Action]) -> None:
        """Begin what can begin, in the order in which the sources became ready."""
        while self._ready:
            source = self._engines[self._ready[0]]
            if not self._begin(source, actions):
                return
            self._ready.popleft()

    def _begin(self, source: Engine, actions: list[Action]) -> bool:
        if source.id in self._room:
            return self._keep(source, actions)
        if not self._listed:
            return False
        target, demand = self._open.least()
        room, engine = self._room[target], self._engines[target]
        ledger, needs = engine.ledger, self._needs
        # What the step under way takes is counted too: room may be kept for less than is written.
        batch, blocks, block = [], ledger.free_blocks - ledger.step_blocks(), ledger.block_tokens
        for progress in source.outgoing:
            need = needs[progress.id]
            blocks -= -(-progress.known_tokens // block)
            if demand + need > room or blocks < 0:
                break
            demand += need
            batch.append(progress)
        if not batch:
            return False
        self._unlist(target)
        self.demands[target] = demand
        self._send(source, engine, tuple(batch), actions)
        return True

    def _keep(self, source: Engine, actions: list[Action]) -> bool:
        """An instance that decodes now keeps what it computed before: its KV is there already."""
        batch, before = tuple(source.outgoing), self.demands[source.id]
        source.outgoing.clear()
        for progress in batch:
            self.migrating_tokens -= progress.known_tokens
            self.demands[source.id] += self._needs[progress.id]
        if source.id not in self._receiving:
            self._open.move(source.id, before, self.demands[source.id])
        source.adopt(batch, actions)
        return True

    def _send(
        self, source: Engine, target: Engine, batch: tuple[Progress, ...], actions: list[Action]
    ) -> None:
        number = self._numbers.begin(source.replica.model)
        self._receiving.add(target.id)
        self.sending[source.id] = number
        self._transfers[number] = _Transfer(source.id, target.id, batch)
        tokens = 0
        for progress in batch:
            target.ledger.reserve(progress.id, progress.known_tokens)
            tokens += progress.known_tokens
        ids = tuple([progress.id for progress in batch])
        size_bytes = tokens * self._rules.kv_bytes_per_token
        actions.append(Send(number, "kv", ids, source.id, target.id, size_bytes, "least demand"))

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A batch has come: its source; None for a transfer that was given up."""
        transfer = self._transfers.pop(event.transfer, None)
        if transfer is None:
            return None
        assert not event.cause, "nobody stops a hand-over"
        source, target = self._engines[transfer.source], self._engines[transfer.target]
        del self.sending[source.id]
        for progress in transfer.batch:
            assert source.outgoing.popleft() is progress
            source.ledger.release(progress.id)
            self.migrating_tokens -= progress.known_tokens
        target.adopt(transfer.batch, actions)
        self._receiving.discard(target.id)
        if target.id in self._room:
            self._list(target.id)
        if source.outgoing:
            self._has_more(source.id)
        source.freed(actions)
        if self._ready:
            self.match(actions)
        return source.id

    def departed(self, replica: int, request: int) -> None:
        """A request left a decode instance; who waits for room is looked at by ``match``."""
        before = self.demands[replica]
        need = self._needs.pop(request)
        self.demands[replica] = before - need
        self.demand_tokens -= need
        if replica in self._room and replica not in self._receiving:
            self._open.move(replica, before, before - need)

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._ready)

    def batch_to(self, replica: int) -> list[int]:
        """The requests whose KV is on its way to an instance."""
        if replica not in self._receiving:
            return []
        found = [one.batch for one in self._transfers.values() if one.target == replica]
        return [progress.id for batch in found for progress in batch]

    def lost(
        self, replica: int, unsent: Collection[int], kept: Collection[int], actions: list[Action]
    ) -> None:
        """A closed instance is gone: with it ``unsent`` requests, of those that room is ``kept`` for.

        Call it before they are forgotten. What it was sending goes nowhere; what was sent to it stays at its
        source, to be sent again.
        """
        if replica in self._ready:
            self._ready.remove(replica)
        for number, transfer in list(self._transfers.items()):
            if replica in (transfer.source, transfer.target):
                del self._transfers[number]
                del self.sending[transfer.source]
                self._give_up(transfer, transfer.target == replica, actions)
        self.demands.pop(replica, None)
        self.migrating_tokens -= sum(self._requests[request].prompt_tokens for request in unsent)
        self.demand_tokens -= sum(self._needs.pop(request) for request in kept)

    def _give_up(self, transfer: _Transfer, target_lost: bool, actions: list[Action]) -> None:
        self._receiving.discard(transfer.target)
        engine = self._engines[transfer.target]
        for progress in transfer.batch:
            engine.ledger.release(progress.id)
        if target_lost:
            self._has_more(transfer.source)
            return
        for progress in transfer.batch:
            need = self._needs[progress.id]
            self.demands[transfer.target] -= need
        if transfer.target in self._room:
            self._list(transfer.target)
        engine.freed(actions)

    def _has_more(self, source: int) -> None:
        """It has something to send. What an instance that decodes now keeps need not wait behind others.

        It must not, either: its memory is full of it, and as the target of least demand it would stop them.
        """
        if source in self._room:
            self._ready.appendleft(source)
        else:
            self._ready.append(source)

    def _list(self, replica: int) -> None:
        self._open.add(replica, self.demands[replica])
        self._listed += 1

    def _unlist(self, replica: int) -> None:
        self._open.remove(replica, self.demands[replica])
        self._listed -= 1
