"""KV on its way, and KV that lies in two places: how much of it is where, and what moves.

While an instance loads its parameters it may compute the first k of a prompt's L layers (the ``giver``); the
last L - k ran on the instance that hands the request over. Each has the KV of its own layers.
"""

from collections.abc import Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.vocabulary.actions import Action, Send
from serving.vocabulary.fact import fact


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
class Part:
    """What one instance sends of a batch: its layers' KV of ``requests``, size_bytes together."""

    place: int
    requests: tuple[int, ...]
    size_bytes: int


class Transfer:
    """A batch on its way. It has come when all its ``numbers`` have: ``missing`` of them have not.

    numbers: one for each part, in the order of the sends. When source and target are the same, this instance
    fetches the first layers of what it keeps.
    """

    __slots__ = ("batch", "missing", "numbers", "source", "target")

    def __init__(
        self, source: int, target: int, batch: tuple[Progress, ...], numbers: tuple[int, ...]
    ) -> None:
        self.source = source
        self.target = target
        self.batch = batch
        self.numbers = numbers
        self.missing = len(numbers)

    @property
    def keeps(self) -> bool:
        """Whether the batch stays where it was computed."""
        return self.source == self.target


def giver_bytes(progress: Progress, layers: int, kv_bytes_per_token: int) -> int:
    """Bytes of the request's KV at its giver, rounded down; the rest of it is at the source."""
    if progress.elsewhere is None:
        return 0
    return progress.known_tokens * kv_bytes_per_token * progress.elsewhere[1] // layers


def parts_of(
    source: int, target: int, batch: Sequence[Progress], layers: int, kv_bytes_per_token: int
) -> list[Part]:
    """What moves to the target: the source's part first, then those of givers as they appear in the batch.

    A part of no bytes does not move, neither does what lies at the target or, for an instance that keeps what
    it computed, at the source.
    """
    bytes_at: dict[int, int] = {source: 0}
    requests_at: dict[int, list[int]] = {source: []}
    for progress in batch:
        whole_bytes = progress.known_tokens * kv_bytes_per_token
        given_bytes = giver_bytes(progress, layers, kv_bytes_per_token)
        shares = [(source, whole_bytes - given_bytes)]
        if progress.elsewhere is not None:
            shares.append((progress.elsewhere[0], given_bytes))
        for place, size_bytes in shares:
            if size_bytes and place != target:
                bytes_at[place] = bytes_at.get(place, 0) + size_bytes
                requests_at.setdefault(place, []).append(progress.id)
    return [Part(place, tuple(ids), bytes_at[place]) for place, ids in requests_at.items() if ids]


class Givers:
    """Which requests that are handed over have a part elsewhere; true when there are any."""

    __slots__ = ("_engines", "_places")

    def __init__(self, engines: Mapping[int, Engine]) -> None:
        self._engines = engines
        self._places: dict[int, tuple[int, int]] = {}  # request -> giver, source

    def __len__(self) -> int:
        return len(self._places)

    def add(self, progress: Progress, source: Engine) -> None:
        """A request whose prompt is computed on the source has its first layers elsewhere."""
        assert progress.elsewhere is not None
        giver, layers = progress.elsewhere
        assert giver != source.id and 0 < layers < len(source.replica.layers), "a part is not elsewhere"
        self._places[progress.id] = giver, source.id

    def of(self, request: int) -> int | None:
        """The giver of a request; None when its KV is in one place."""
        place = self._places.get(request)
        return None if place is None else place[0]

    def by_source(self, giver: int) -> dict[int, list[int]]:
        """Requests whose first layers' KV is there, by the instance that has the other part."""
        found: dict[int, list[int]] = {}
        for request, (place, source) in self._places.items():
            if place == giver:
                found.setdefault(source, []).append(request)
        return found

    def held_blocks(self, giver: int) -> int:
        """Blocks that an instance has for first layers of others' requests."""
        ledger = self._engines[giver].ledger
        places = self._places.items()
        return sum([ledger.held_blocks(request) for request, (place, _) in places if place == giver])

    def group(self, waiting: Iterable[Progress]) -> dict[int, list[Progress]]:
        """Those who have a part elsewhere, by giver."""
        found: dict[int, list[Progress]] = {}
        for progress in waiting:
            if progress.id in self._places:
                found.setdefault(self._places[progress.id][0], []).append(progress)
        return found

    def release(self, requests: Iterable[int], target: int | None = None) -> list[Engine]:
        """Their parts are needed no more, and their memory is free, but that of the target.

        Returns the instances that have more memory now, in order of first appearance.
        """
        freed: dict[int, Engine] = {}
        for request in requests:
            place = self._places.pop(request, None)
            if place is not None and place[0] != target:
                engine = freed.setdefault(place[0], self._engines[place[0]])
                engine.release((request,))
        return list(freed.values())


class UnderWay:
    """The transfers of one model, by the number of each part that has not come."""

    __slots__ = ("_kv_bytes_per_token", "_numbers", "_transfers", "fetching", "givers", "sending")

    def __init__(self, givers: Givers, kv_bytes_per_token: int, numbers: Transfers) -> None:
        self._kv_bytes_per_token = kv_bytes_per_token
        self._numbers = numbers
        self._transfers: dict[int, Transfer] = {}
        self.givers = givers
        self.sending: set[int] = set()  # sources of what does not stay there
        self.fetching: set[int] = set()  # requests that stay where they were computed when a part has come

    def begin(
        self, source: Engine, target: Engine, batch: tuple[Progress, ...], reason: str, actions: list[Action]
    ) -> None:
        """Send every part of a batch."""
        if source is target:
            self.fetching.update([progress.id for progress in batch])
        else:
            self.sending.add(source.id)
        kv_bytes, model = self._kv_bytes_per_token, source.replica.model
        if not self.givers:
            number = self._numbers.begin(model)
            self._transfers[number] = Transfer(source.id, target.id, batch, (number,))
            ids = tuple([progress.id for progress in batch])
            size_bytes = sum([progress.known_tokens for progress in batch]) * kv_bytes
            actions.append(Send(number, "kv", ids, source.id, target.id, size_bytes, reason))
            return
        parts = parts_of(source.id, target.id, batch, len(source.replica.layers), kv_bytes)
        numbers = tuple([self._numbers.begin(model) for _ in parts])
        transfer = Transfer(source.id, target.id, batch, numbers)
        for number, part in zip(numbers, parts):
            self._transfers[number] = transfer
            actions.append(Send(number, "kv", part.requests, part.place, target.id, part.size_bytes, reason))

    def by_giver(
        self, source: Engine, batch: Iterable[Progress]
    ) -> tuple[tuple[Progress, ...], list[tuple[Progress, ...]]]:
        """Those whose KV is all at the source, and the others, each giver's together."""
        here, given = list[Progress](), list[Progress]()
        for progress in batch:
            part = giver_bytes(progress, len(source.replica.layers), self._kv_bytes_per_token)
            (given if part else here).append(progress)
        return tuple(here), [tuple(group) for group in self.givers.group(given).values()]

    def unsent(self, source: Engine) -> Sequence[Progress]:
        """Who waits at a source that sends nothing; for some that it keeps it may be fetching parts."""
        if not self.fetching:
            return source.outgoing
        return [progress for progress in source.outgoing if progress.id not in self.fetching]

    def came(self, number: int) -> Transfer | None:
        """A part has come: the transfer if it was the last, which is then over; else None."""
        transfer = self._transfers.pop(number, None)
        if transfer is None:
            return None  # given up
        transfer.missing -= 1
        if transfer.missing:
            return None
        self.over(transfer)
        return transfer

    def over(self, transfer: Transfer) -> None:
        """It has come, or is given up."""
        if transfer.missing:
            for number in transfer.numbers:
                self._transfers.pop(number, None)
        if transfer.source == transfer.target:
            self.fetching.difference_update([progress.id for progress in transfer.batch])
        else:
            self.sending.remove(transfer.source)

    def senders(self) -> set[int]:
        """The instances that KV leaves now; a giver counts until the whole batch has come."""
        found = set(self.sending)
        if self.givers:
            for transfer in self.all():
                givers = [self.givers.of(progress.id) for progress in transfer.batch]
                found.update([giver for giver in givers if giver is not None and giver != transfer.target])
        return found

    def all(self) -> list[Transfer]:
        """Each once, in the order in which they began."""
        return list(dict.fromkeys(self._transfers.values()))
