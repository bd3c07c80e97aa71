"""KV on its way from prefill to decode instances of one model: who sends to whom, and when.

A prefill instance sends what it has completed as one batch at a time, a decode instance takes in one at a
time. A seat for a request, and room for all the tokens it may have, are kept from the moment its KV is sent;
that memory is taken, and the source's given back, when the KV has come (OSDI 2025's artefact does the same).

The KV of a request's first layers may lie at a third instance, its giver (``serving.kv.transfers``). Both
parts go to the target at once, each with a number; the request has come when both have. Who keeps what it
computed fetches the givers' parts first, several at a time and beside a batch that is sent to it. A giver may
send several parts at a time. Parts that lie at a decode instance count as room that it keeps.

| request      | completed | a part came | the last came     | source lost | target lost  | giver lost   |
|--------------|-----------|-------------|-------------------|-------------|--------------|--------------|
| at source    | queue     | -           | -                 | fails       | stays        | fails        |
| on its way   | -         | waits       | decodes at target | fails       | queued again | fails        |
| with such    | -         | waits       | decodes at target | fails       | queued again | queued again |
| being kept   | -         | -           | decodes there     | fails       | -            | fails        |
| it has come  | -         | refused     | refused           | decodes on  | fails        | decodes on   |

With such: not split, in a batch with one that is. "Queued again" is at the source.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.decode_room import DecodeRoom, HandOverRules
from serving.kv.transfers import Givers, Transfer, Transfers, UnderWay
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Sent
from serving.vocabulary.request import Request

__all__ = ["HandOverRules", "HandOvers", "Transfers"]


class HandOvers:
    """The transfers of one model, and the room kept on its decode instances."""

    __slots__ = (
        "_engines", "_givers", "_pulled", "_ready", "_requests", "_room", "_under_way", "demand_tokens",
        "migrating_tokens", "senders",
    )  # fmt: skip

    def __init__(
        self,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        rules: HandOverRules,
        numbers: Transfers,
        block_tokens: int = 1,
    ) -> None:
        self._engines = engines
        self._requests = requests
        self._ready: deque[int] = deque()  # sources with something to send, the longest waiting first
        self._room = DecodeRoom(rules, block_tokens)
        self._givers = Givers(engines)
        self._under_way = UnderWay(self._givers, rules.kv_bytes_per_token, numbers)
        self.senders = self._under_way.senders
        # The sum of demands, and of those completed whom nobody has room for yet, and how many those are.
        self.demand_tokens = self._pulled = 0
        self.migrating_tokens = 0

    @property
    def demands(self) -> dict[int, int]:
        """Tokens that room is kept for, by decode instance."""
        return self._room.demands

    @property
    def demand_seats(self) -> int:
        """Requests whose tokens are in ``demand_tokens``."""
        return len(self._room.needs) + self._pulled

    @property
    def seats(self) -> dict[int, int]:
        """Requests that room is kept for, by decode instance."""
        return self._room.seats

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._ready)

    def need_tokens(self, request: Request, room: int) -> int:
        """Room that a request takes of an instance with so many tokens of it: ``DecodeRoom.need_tokens``."""
        return self._room.need_tokens(request, room)

    def open(self, replica: int) -> None:
        """A decode instance takes requests from now on."""
        engine = self._engines[replica]
        engine.limit_decoding(self._room.most_requests)
        self._room.open(replica, engine.replica.longest_request_tokens)
        if replica in self._ready:
            self._ready.remove(replica)
            self._has_more(replica)

    def close(self, replica: int) -> None:
        """It takes no new ones; what is on its way still comes."""
        self._room.close(replica)

    def completed(self, engine: Engine, earlier: int, actions: list[Action]) -> None:
        """A pass has completed prompts: all of ``engine.outgoing`` after the first ``earlier`` of them."""
        outgoing, requests, source, room = engine.outgoing, self._requests, engine.id, self._room
        memory = engine.replica.longest_request_tokens
        for position in range(earlier, len(outgoing)):
            request = requests[(progress := outgoing[position]).id]
            if progress.elsewhere is not None:
                self._givers.add(progress, engine)
            self.migrating_tokens += request.prompt_tokens
            room.needs[request.id] = need = room.need_tokens(request, memory)
            self.demand_tokens += need
        if source not in self._under_way.sending and source not in self._ready:
            self._has_more(source)
        if self._ready:
            self.match(actions)

    def match(self, actions: list[Action]) -> None:
        """Begin what can begin, in the order in which the sources became ready."""
        while self._ready:
            if self._begin(self._engines[self._ready[0]], actions):
                self._ready.popleft()
            elif not (self._givers and self._begin_at_giver(actions)):
                return

    def _begin(self, source: Engine, actions: list[Action]) -> bool:
        if source.id in self._room.rooms:
            self._keep(source, actions)
            return True
        least = self._room.least()
        return least is not None and self._send(source, self._under_way.unsent(source), least, actions)

    def _begin_at_giver(self, actions: list[Action]) -> bool:
        """Nobody has room for the first: one that decodes may be full of others' parts, who go first then."""
        room = self._room
        for number in self._ready:
            source = self._engines[number]
            for giver, given in self._givers.group(self._under_way.unsent(source)).items():
                if giver not in room.rooms or giver in room.receiving:
                    continue
                if self._send(source, given, (giver, room.demands[giver]), actions):
                    self._ready.remove(number)
                    return True
        return False

    def _send(
        self, source: Engine, waiting: Sequence[Progress], least: tuple[int, int], actions: list[Action]
    ) -> bool:
        """The first of those who wait, to the target of least demand; False when it has no room for one."""
        target, demand = least
        engine = self._engines[target]
        batch, demand = self._room.first(waiting, engine, demand, self._givers)
        if not batch:
            return False
        self._room.comes(target, demand, len(batch))
        for progress in batch:
            engine.reserve(progress.id, progress.known_tokens)
        self._under_way.begin(source, engine, tuple(batch), "least demand", actions)
        return True

    def _keep(self, source: Engine, actions: list[Action]) -> None:
        """An instance that decodes now keeps what it computed before, when the givers' parts have come."""
        unsent = here = tuple(self._under_way.unsent(source))
        groups: list[tuple[Progress, ...]] = []
        if self._givers:
            here, groups = self._under_way.by_giver(source, unsent)
        needs = self._room.needs
        self._room.changes(source.id, sum([needs[progress.id] for progress in unsent]), len(unsent))
        self._leave(source, here, keeps_kv=True)
        freed = self._one_place(here) if self._givers else ()
        if here:
            source.adopt(here, actions, self._room.fits(source.id, source.replica.longest_request_tokens))
        for group in groups:
            self._under_way.begin(source, source, group, "its last layers ran there", actions)
        _freed(freed, actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A part has come: the source if the batch has; None if parts are missing, or it was given up."""
        transfer = self._under_way.came(event.transfer)
        if transfer is None:
            return None
        assert not event.cause, "nobody stops a hand-over"
        source, target, batch = self._engines[transfer.source], self._engines[transfer.target], transfer.batch
        self._leave(source, batch, keeps_kv=source is target)
        freed = self._one_place(batch, target.id) if self._givers else ()
        target.adopt(batch, actions, self._room.fits(target.id, target.replica.longest_request_tokens))
        if source is not target:
            self._room.has_come(target.id)
            if self._under_way.unsent(source):
                self._has_more(source.id)
        source.freed(actions)
        _freed(freed, actions)
        if self._ready:
            self.match(actions)
        return source.id

    def _one_place(self, batch: Collection[Progress], target: int | None = None) -> Sequence[Engine]:
        """All KV of these is at the target: their givers' memory is free; returns the givers."""
        for progress in batch:
            progress.elsewhere = None
        return self._givers.release([progress.id for progress in batch], target)

    def _leave(self, source: Engine, batch: Sequence[Progress], keeps_kv: bool) -> None:
        source.detach(batch, keeps_kv)
        self.migrating_tokens -= sum([progress.known_tokens for progress in batch])

    def has_room(self, engine: Engine, tokens: int, requests: int) -> bool:
        """Whether a decode instance has memory and seats for so many more."""
        return self._room.fits(engine.id, engine.replica.longest_request_tokens, tokens, requests)

    def keep(self, replica: int, tokens: int, requests: int) -> None:
        """Room at a decode instance for what it computes itself; less if negative."""
        self.demand_tokens += tokens
        self._pulled += requests
        self._room.changes(replica, tokens, requests)

    def departed(self, replica: int, request: int) -> None:
        """A request left a decode instance; who waits for room is looked at by ``match``."""
        self.demand_tokens -= self._room.departed(replica, request)

    def batch_to(self, replica: int) -> list[int]:
        """The requests whose KV is on its way to an instance; what it keeps is outgoing there as well."""
        if replica not in self._room.receiving and not self._under_way.fetching:
            return []
        return [one.id for found in self._under_way.all() if found.target == replica for one in found.batch]

    def parts_at(self, giver: int) -> list[int]:
        """Requests that are handed over by others and whose first layers' KV an instance has."""
        return [request for group in self._givers.by_source(giver).values() for request in group]

    def lost(
        self, replica: int, unsent: Collection[int], kept: Collection[int], actions: list[Action]
    ) -> None:
        """A closed instance is gone: with it ``unsent`` requests, of those that room is ``kept`` for.

        Call it, and ``without``, before they are forgotten. What was sent to it stays where it is.
        """
        if replica in self._ready:
            self._ready.remove(replica)
        for transfer in self._under_way.all():
            if replica not in (transfer.source, transfer.target):
                continue
            self._under_way.over(transfer)
            if transfer.source == replica:
                self._give_back(transfer)
                self._engines[transfer.target].freed(actions)
                continue
            self._engines[replica].release([progress.id for progress in transfer.batch])
            self._has_more(transfer.source)
        self._room.lost(replica)
        self.migrating_tokens -= sum(self._requests[request].prompt_tokens for request in unsent)
        self.demand_tokens -= self._room.forget(kept)
        _freed(self._givers.release(unsent), actions)

    def without(self, giver: int, actions: list[Action]) -> list[int]:
        """An instance is gone that may have parts of others' requests: these fail; returns them, ascending.

        Call it before they are forgotten, before or after ``lost``, and ``match`` after both: what was sent
        with them stays at its source, to be sent again.
        """
        groups = self._givers.by_source(giver)
        if not groups:
            return []
        gone = sorted([request for group in groups.values() for request in group])
        failing = set(gone)
        stopped = [one for one in self._under_way.all() if any(each.id in failing for each in one.batch)]
        for transfer in stopped:
            self._under_way.over(transfer)
            self._give_back(transfer)
        for number in groups:
            source = self._engines[number]
            self._leave(source, [one for one in source.outgoing if one.id in failing], keeps_kv=False)
            if number in self._ready and not self._under_way.unsent(source):
                self._ready.remove(number)
        self.demand_tokens -= self._room.forget(gone)
        self._givers.release(gone)
        for transfer in stopped:
            if not transfer.keeps and self._under_way.unsent(self._engines[transfer.source]):
                self._has_more(transfer.source)
        changed = dict.fromkeys([*groups, *(transfer.target for transfer in stopped)])
        _freed([self._engines[number] for number in changed], actions)
        return gone

    def _give_back(self, transfer: Transfer) -> None:
        """No room is kept for what does not come. What the target had before, as a giver, it still has."""
        target, needs, batch = self._engines[transfer.target], self._room.needs, transfer.batch
        self._room.changes(target.id, -sum([needs[progress.id] for progress in batch]), -len(batch))
        if transfer.keeps:
            return
        target.release([one.id for one in transfer.batch if self._givers.of(one.id) != target.id])
        self._room.has_come(target.id)

    def _has_more(self, source: int) -> None:
        """It has something to send. What an instance that decodes now keeps need not wait behind others.

        It must not, either: its memory is full of it, and as the target of least demand it would stop them.
        """
        if source in self._room.rooms:
            self._ready.appendleft(source)
        else:
            self._ready.append(source)


def _freed(engines: Iterable[Engine], actions: list[Action]) -> None:
    for engine in engines:
        engine.freed(actions)
