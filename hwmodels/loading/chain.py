"""Parameters over a chain (or tree) of hops that forward chunk by chunk as they arrive."""

from collections.abc import Iterator, Sequence

from hwmodels.errors import HardwareError
from hwmodels.loading.plan import (
    NOTHING,
    SOURCE,
    Arrival,
    Hop,
    Missing,
    Progress,
    Send,
    Step,
    Stopped,
)
from hwmodels.loading.units import Unit, cut_into_chunks


class Chain:
    """Store and forward: a hop sends a chunk once it lies at the hop's start and the one before is through.

    Knows neither time nor rates: it says which flows to start and is told which have finished. Over n hops
    of one rate B that share nothing, everything is at the end after |M|/B + (n-1) * largest chunk/B.

    units: what to move, in order. hops: each with where it starts (``Hop.after``); several that start at the
    end of one make a tree. chunk_bytes: see ``cut_into_chunks``. sequential: a hop waits until all of it lies
    at its start. progress: what lies at each hop's end already, when a plan is taken up again. rank: copied
    into every ``Send``. Raises HardwareError.
    """

    __slots__ = (
        "_after", "_arrived", "_begun", "_chunks", "_hops", "_next", "_partial", "_rank", "_sending",
        "_sequential", "_stopped", "_units",
    )  # fmt: skip

    def __init__(
        self,
        units: Sequence[Unit],
        hops: Sequence[Hop],
        *,
        chunk_bytes: int | None = None,
        sequential: bool = False,
        progress: Sequence[Progress] = (),
        rank: int = 0,
    ) -> None:
        self._units = tuple(units)
        self._hops = tuple(hops)
        self._chunks = cut_into_chunks(self._units, chunk_bytes)
        self._sequential = sequential
        self._rank = rank
        self._after = tuple(_after(index, hop) for index, hop in enumerate(self._hops))
        self._next: tuple[list[int], ...] = tuple([] for _ in self._hops)
        for index, after in enumerate(self._after):
            if after != SOURCE:
                self._next[after].append(index)
        kept = tuple(progress) or (Progress(),) * len(self._hops)
        self._check(kept)
        self._arrived = [one.chunks for one in kept]
        self._partial = [one.partial_bytes for one in kept]
        self._sending = [False] * len(self._hops)
        self._stopped = [False] * len(self._hops)
        self._begun = False

    @property
    def units(self) -> tuple[Unit, ...]:
        """What is moved, in order."""
        return self._units

    @property
    def hops(self) -> int:
        """How many hops there are, stopped ones too."""
        return len(self._hops)

    @property
    def done(self) -> bool:
        """Whether every hop that was not stopped is through."""
        return all(
            stopped or arrived == len(self._chunks)
            for stopped, arrived in zip(self._stopped, self._arrived, strict=True)
        )

    def begin(self) -> list[Send]:
        """The first flows, once."""
        assert not self._begun, "a chain begins once"
        self._begun = True
        return [send for hop in range(len(self._hops)) for send in self._sends(hop)]

    def finished(self, hop: int, chunk: int) -> Step:
        """The flow of ``chunk`` over ``hop`` is through; nothing follows on a hop that was stopped."""
        if self._stopped[hop]:
            return NOTHING
        assert self._sending[hop] and chunk == self._arrived[hop], f"chunk {chunk} is not on hop {hop}"
        self._sending[hop] = False
        self._arrived[hop] += 1
        self._partial[hop] = 0.0
        sends = [send for starter in (hop, *self._next[hop]) for send in self._sends(starter)]
        unit = self._chunks[chunk].unit
        there = (Arrival(hop, unit, self._units[unit].layer),) if self._chunks[chunk].last else ()
        return Step(tuple(sends), there)

    def whole_units(self, hop: int) -> int:
        """How many units, from the first on, are whole at the hop's end."""
        arrived = self._arrived[hop]
        return self._chunks[arrived].unit if arrived < len(self._chunks) else len(self._units)

    def progress(self, hop: int) -> Progress:
        """What lies at the hop's end; a chunk under way counts once ``delivered`` says so."""
        return Progress(self._arrived[hop], self._partial[hop])

    def missing(self, hop: int) -> Missing:
        """What the hop's end still lacks."""
        left = sum(chunk.size_bytes for chunk in self._chunks[self._arrived[hop] :])
        return Missing(hop, left - self._partial[hop], self._units[self.whole_units(hop) :])

    def drop_tail(self, hop: int) -> Stopped:
        """The targets from this hop's end on are no longer wanted; what comes before them goes on."""
        return Stopped(tuple(self._stop(hop)), ())

    def cut(self, hop: int) -> Stopped:
        """The node at the hop's end is dead: those after it lost their source and keep what they have."""
        living = [one for one in self._below(hop) if not self._stopped[one]]
        return Stopped(tuple(self._stop(hop)), tuple(map(self.missing, living)))

    def delivered(self, hop: int, size_bytes: float) -> None:
        """So much of the chunk that was under way on a stopped hop arrived before its flow was aborted."""
        assert self._stopped[hop] and self._sending[hop], f"no flow of hop {hop} was aborted"
        assert size_bytes >= 0
        self._sending[hop] = False
        # The fabric's bytes are floats: a rounding error must not make more of a chunk than there is.
        whole = float(self._chunks[self._arrived[hop]].size_bytes)
        self._partial[hop] = min(whole, self._partial[hop] + size_bytes)

    def _sends(self, hop: int) -> Iterator[Send]:
        chunk = self._arrived[hop]
        if self._stopped[hop] or self._sending[hop] or chunk >= self._at_start(hop):
            return
        self._sending[hop] = True
        size_bytes = self._chunks[chunk].size_bytes - self._partial[hop]
        yield Send(self._rank, hop, chunk, self._hops[hop].flow(size_bytes))

    def _at_start(self, hop: int) -> int:
        """Chunks that may leave the hop's start."""
        after = self._after[hop]
        arrived = len(self._chunks) if after == SOURCE else self._arrived[after]
        return 0 if self._sequential and arrived < len(self._chunks) else arrived

    def _stop(self, hop: int) -> Iterator[Send]:
        for one in (hop, *self._below(hop)):
            if self._sending[one] and not self._stopped[one]:
                chunk = self._arrived[one]
                size_bytes = self._chunks[chunk].size_bytes - self._partial[one]
                yield Send(self._rank, one, chunk, self._hops[one].flow(size_bytes))
            self._stopped[one] = True

    def _below(self, hop: int) -> Iterator[int]:
        for one in self._next[hop]:
            yield one
            yield from self._below(one)

    def _check(self, kept: Sequence[Progress]) -> None:
        if not self._units or not self._hops:
            raise HardwareError("a load without units or hops: write at least one of each")
        if len(kept) != len(self._hops):
            raise HardwareError(f"progress of {len(kept)} hops for {len(self._hops)}: write one for each")
        for one in kept:
            chunks = self._chunks[one.chunks : one.chunks + 1]
            room = chunks[0].size_bytes if chunks else 0
            if not (0 <= one.chunks <= len(self._chunks) and 0 <= one.partial_bytes <= room):
                raise HardwareError(
                    f"{one} is not in a load of {len(self._chunks)} chunks: write what an earlier plan's "
                    "progress() says, with the same units and chunk_bytes"
                )


def _after(index: int, hop: Hop) -> int:
    after = index - 1 if hop.after is None else hop.after
    if not SOURCE <= after < index:
        raise HardwareError(f"hop {index} starts after hop {after}: write an earlier one, or {SOURCE}")
    return after
