"""Parameters over hops that forward chunk by chunk as they arrive: a chain, a tree, channels that join."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.fabric.flow import FlowSpec
from hwmodels.loading.plan import (
    NOTHING,
    SOURCE,
    ChunkProgress,
    ChunkSend,
    Hop,
    LoadStep,
    MissingUnits,
    Stopped,
    UnitArrival,
)
from hwmodels.loading.relay import Relay, RelayState, relayed_chunks
from hwmodels.models.load_units import ParameterChunk, Unit, cut_into_chunks

# A chunk that lacks at most this share of itself is complete: the rest is rounding of the fabric.
_ROUNDING: Final = 1e-12


class Chain:
    """Store and forward: a hop sends a chunk once it is at the hop's start and the previous one has passed.

    A hop pays its latency if it was idle, not for a chunk right after another one. A chain knows neither time
    nor rates: it returns the flows to start and is called when they finish. Over n hops of one rate B that
    share nothing, everything is at the end after |M|/B + (n-1) * largest chunk/B.

    units: what to move, in order. hops: each with its start (``Hop.after``). Several hops that start at the
    end of one make a tree; one that starts at the ends of several waits for all of them. ends: per target the
    hops of which it needs every chunk; arrivals there are reported by the target's number. None: every hop's
    end is a target. chunk_bytes: see ``cut_into_chunks``; chunks: the units already cut. sequential: a hop
    waits until all of it is at its start. progress: what is at each hop's end already, to resume a plan.
    rank: copied into every ``ChunkSend``. Raises HardwareError.
    """

    __slots__ = (
        "_after", "_arrived", "_begun", "_chunks", "_ends", "_feeds", "_hops", "_next", "_partial",
        "_rank", "_ready", "_relays", "_sending", "_sequential", "_specs", "_stopped", "_together", "_units",
        "_whole",
    )  # fmt: skip

    def __init__(
        self,
        units: Sequence[Unit],
        hops: Sequence[Hop],
        *,
        ends: Sequence[Sequence[int]] | None = None,
        chunk_bytes: int | None = None,
        chunks: Sequence[ParameterChunk] | None = None,
        sequential: bool = False,
        progress: Sequence[ChunkProgress] = (),
        rank: int = 0,
    ) -> None:
        self._units, self._hops = tuple(units), tuple(hops)
        self._chunks = cut_into_chunks(self._units, chunk_bytes) if chunks is None else tuple(chunks)
        self._sequential = sequential
        self._rank = rank
        self._after = tuple(_after(index, hop) for index, hop in enumerate(self._hops))
        self._next: tuple[list[int], ...] = tuple([] for _ in self._hops)
        for index, afters in enumerate(self._after):
            for after in afters:
                self._next[after].append(index)
        self._ends = tuple((hop,) for hop in range(len(self._hops))) if ends is None else tuple(ends)
        self._feeds: tuple[list[int], ...] = tuple([] for _ in self._hops)
        for target, own in enumerate(self._ends):
            for hop in own:
                self._feeds[hop].append(target)
        start = tuple(progress) or (ChunkProgress(),) * len(self._hops)
        self._check(start)
        self._arrived = [of_hop.chunks for of_hop in start]
        self._partial = [of_hop.partial_bytes for of_hop in start]
        self._whole = [min(self._arrived[hop] for hop in own) for own in self._ends]
        self._sending = [0] * len(self._hops)  # chunks of the flow in progress
        self._together = False
        self._stopped = [False] * len(self._hops)
        self._begun = False
        self._ready = len(self._chunks)
        self._specs: dict[tuple[int, float, bool], FlowSpec] = {}
        self._relays: tuple[Relay, ...] = ()

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units to move, in order."""
        return self._units

    @property
    def chunks(self) -> tuple[ParameterChunk, ...]:
        """The chunks in which units are sent."""
        return self._chunks

    @property
    def hops(self) -> int:
        """Number of hops, including stopped ones."""
        return len(self._hops)

    @property
    def done(self) -> bool:
        """Whether every hop that was not stopped has finished."""
        return all(
            stopped or arrived == len(self._chunks)
            for stopped, arrived in zip(self._stopped, self._arrived, strict=True)
        )

    def relays(self, rate_of: Callable[[Hop], float]) -> list[Relay]:
        """The hops that could be relays of their whole load: see ``begin``.

        rate_of: bytes/s of a flow that has a hop's links alone. Such a hop forwards the chunks of one other,
        from the source, which none else follows; it shares no link with any, and is faster.
        """
        found: list[Relay] = []
        if len(self._hops) == 1 or self._sequential or any(self._arrived) or any(self._partial):
            return found
        users = Counter([link for hop in self._hops for link in hop.links])
        for number, after in enumerate(self._after):
            if (
                len(after) != 1
                or self._next[number]
                or len(self._next[after[0]]) != 1
                or self._after[after[0]]
            ):
                continue
            hop, before = self._hops[number], self._hops[after[0]]
            rate, comes = rate_of(hop), rate_of(before)
            if not (0 < rate < inf and 0 < comes < inf) or any(users[link] > 1 for link in hop.links):
                continue
            sizes = [chunk.size_bytes for chunk in self._chunks]
            chunks = relayed_chunks(sizes, before.share / comes, hop.share / rate, hop.latency_s)
            if chunks:
                found.append(Relay(number, after[0], chunks, rate, hop.latency_s))
        return found

    def begin(
        self, ready: int | None = None, together: bool = False, relays: Sequence[Relay] = ()
    ) -> list[ChunkSend]:
        """Begin once; returns the first flows. ready: number of chunks at the source (None: all).

        together: until ``part``, single chunks need not be reported. A hop whose end forwards to no other
        then sends everything at its start as one flow, which ends when the last of these chunks would. Call
        ``part`` before ``drop_tail`` or ``cut``. relays: of those that ``relays`` returned, hops of which no
        other flow uses a link until ``part``; these have no flows for the chunks that they relay.
        """
        assert not self._begun, "a chain begins once"
        self._begun = True
        self._together, self._relays = together, tuple(relays)
        if ready is not None:
            self._ready = ready
        return [send for hop in range(len(self._hops)) for send in self._sends(hop)]

    def feed(self, ready: int) -> list[ChunkSend]:
        """Note ``ready`` chunks at the source; returns the flows that waited for them."""
        assert self._begun and ready >= self._ready, "what lay at the source does not go away"
        if ready == self._ready:
            return []
        self._ready = ready
        return [send for hop, after in enumerate(self._after) if not after for send in self._sends(hop)]

    def finished(self, hop: int, chunk: int) -> LoadStep:
        """Handle the end of the flow of ``chunk`` over ``hop``; nothing follows on a stopped hop."""
        if self._stopped[hop]:
            return NOTHING
        assert self._sending[hop] and chunk == self._arrived[hop], f"chunk {chunk} is not on hop {hop}"
        self._arrived[hop] += self._sending[hop]
        self._sending[hop] = 0
        self._partial[hop] = 0.0
        relay = self._take_relay(hop) if self._relays else None
        if relay is None:
            return self._step(hop, idle=False)
        self._arrived[relay.hop] = relay.chunks - 1
        step = self._step(hop, idle=False)
        return LoadStep(step.sends, (*step.arrivals, *self._there(relay.hop)))

    def relay_ended(self, relay: Relay, arrived: int, state: RelayState) -> LoadStep:
        """Handle the early end of a relay: chunks become flows.

        arrived: chunks that the flow before it has moved; the caller lets that flow end with the next one.
        """
        before, hop = relay.before, relay.hop
        self._take_relay(before)
        self._arrived[before], self._sending[before] = arrived, 1
        self._arrived[hop], self._partial[hop] = state.chunks, state.partial_bytes
        sends = self._sends(hop, idle=state.wait_s is None)
        if state.wait_s:
            sends = [send._replace(flow=replace(send.flow, latency_s=state.wait_s)) for send in sends]
        return LoadStep(tuple(sends), self._there(hop))

    def part(self) -> list[ChunkSend]:
        """Make every chunk a flow from now on. Returns combined flows, to abort and pass to ``parted``.

        A flow before a relay goes on: see ``relay_ended``.
        """
        self._together = False
        relaying = [relay.before for relay in self._relays]
        combined = [hop for hop, count in enumerate(self._sending) if count > 1 and hop not in relaying]
        return [self._send(hop) for hop in combined]

    def parted(self, hop: int, moved_bytes: float) -> LoadStep:
        """Handle an aborted flow of several chunks: complete units, and the flows that follow."""
        moved = self._partial[hop] + moved_bytes
        for chunk in range(self._arrived[hop], self._arrived[hop] + self._sending[hop]):
            size_bytes = self._size_bytes(hop, chunk)
            if moved < size_bytes * (1 - _ROUNDING):
                break
            self._arrived[hop] += 1
            moved = max(0.0, moved - size_bytes)
        self._partial[hop] = moved
        self._sending[hop] = 0
        return self._step(hop, idle=not moved_bytes)

    def sizes_bytes(self, hop: int) -> list[float]:
        """Bytes of each chunk that cross each link of a hop."""
        share = self._hops[hop].share
        return [chunk.size_bytes * share for chunk in self._chunks]

    def links_of(self, hop: int) -> tuple[int, ...]:
        """The links of a hop."""
        return self._hops[hop].links

    def complete_chunks(self, target: int) -> int:
        """Number of chunks, from the first on, that are complete at a target."""
        return self._whole[target]

    def whole_units_at(self, target: int) -> int:
        """Number of units, from the first on, that are complete at a target."""
        whole = self._whole[target]
        return self._chunks[whole].unit if whole < len(self._chunks) else len(self._units)

    def whole_units(self, hop: int) -> int:
        """Number of units, from the first on, that are complete at the hop's end."""
        arrived = self._arrived[hop]
        return self._chunks[arrived].unit if arrived < len(self._chunks) else len(self._units)

    def progress(self, hop: int) -> ChunkProgress:
        """What is at the hop's end; a chunk in progress counts after ``delivered``."""
        return ChunkProgress(self._arrived[hop], self._partial[hop])

    def missing(self, hop: int) -> MissingUnits:
        """What the hop's end still lacks of its share."""
        left = sum(self._size_bytes(hop, chunk) for chunk in range(self._arrived[hop], len(self._chunks)))
        return MissingUnits(hop, left - self._partial[hop], self._units[self.whole_units(hop) :])

    def drop_tail(self, hop: int) -> Stopped:
        """Drop the targets from this hop's end on; hops before it continue."""
        return Stopped(tuple(self._stop(hop)), ())

    def cut(self, hop: int) -> Stopped:
        """The node at the hop's end is lost: those after it lose their source and keep what they have."""
        living = [below for below in dict.fromkeys(self._below(hop)) if not self._stopped[below]]
        return Stopped(tuple(self._stop(hop)), tuple(map(self.missing, living)))

    def delivered(self, hop: int, size_bytes: float) -> None:
        """Note how much of the chunk in progress on a stopped hop arrived before its flow was aborted."""
        assert self._stopped[hop] and self._sending[hop], f"no flow of hop {hop} was aborted"
        assert size_bytes >= 0
        self._sending[hop] = 0
        # The fabric's bytes are floats: rounding must not make a chunk larger than it is.
        whole = float(self._size_bytes(hop, self._arrived[hop]))
        self._partial[hop] = min(whole, self._partial[hop] + size_bytes)

    def _step(self, hop: int, idle: bool) -> LoadStep:
        """What follows when chunks crossed a hop; ``idle``: it pays its latency again."""
        sends = self._sends(hop, idle)
        for follower in self._next[hop]:
            sends += self._sends(follower)
        return LoadStep(tuple(sends), self._there(hop) if self._feeds[hop] else ())

    def _there(self, hop: int) -> tuple[UnitArrival, ...]:
        """The units that have become complete at the targets of a hop."""
        there = list[UnitArrival]()
        for target in self._feeds[hop]:
            there += self._arrivals(target)
        return tuple(there)

    def _take_relay(self, before: int) -> Relay | None:
        """The relay that a hop fed until now."""
        for relay in self._relays:
            if relay.before == before:
                self._relays = tuple([one for one in self._relays if one is not relay])
                return relay
        return None

    def _sends(self, hop: int, idle: bool = True) -> list[ChunkSend]:
        if self._stopped[hop] or self._sending[hop]:
            return []
        waiting = self._at_start(hop) - self._arrived[hop]
        if waiting <= 0:
            return []
        count = waiting if self._together and not self._next[hop] else 1
        if self._relays:
            if hop in [relay.hop for relay in self._relays]:
                return []
            count = next((relay.chunks for relay in self._relays if relay.before == hop), count)
        self._sending[hop] = count
        return [self._send(hop, idle)]

    def _send(self, hop: int, idle: bool = True) -> ChunkSend:
        """The chunks that are next, or in progress, on a hop."""
        chunk, count = self._arrived[hop], self._sending[hop]
        size_bytes = self._size_bytes(hop, chunk) - self._partial[hop]
        if count > 1:
            size_bytes += sum([self._size_bytes(hop, number) for number in range(chunk + 1, chunk + count)])
        spec = self._specs.get((hop, size_bytes, idle))  # most chunks are a layer, so most flows are alike
        if spec is None:
            spec = self._specs[hop, size_bytes, idle] = self._hops[hop].flow(size_bytes, idle=idle)
        return ChunkSend(self._rank, hop, chunk, spec)

    def _size_bytes(self, hop: int, chunk: int) -> float:
        return self._chunks[chunk].size_bytes * self._hops[hop].share

    def _arrivals(self, target: int) -> list[UnitArrival]:
        """The units that have become complete at a target."""
        before, whole = self._whole[target], min([self._arrived[hop] for hop in self._ends[target]])
        self._whole[target] = whole
        units = self._units
        return [
            UnitArrival(target, chunk.unit, units[chunk.unit].layer)
            for chunk in self._chunks[before:whole]
            if chunk.last
        ]

    def _at_start(self, hop: int) -> int:
        """Number of chunks that may leave the hop's start."""
        after = self._after[hop]
        arrived = min([self._arrived[before] for before in after]) if after else self._ready
        return 0 if self._sequential and arrived < len(self._chunks) else arrived

    def _stop(self, hop: int) -> Iterator[ChunkSend]:
        for below in (hop, *self._below(hop)):
            assert self._sending[below] < 2, "part a load before you cut it"
            if self._sending[below] and not self._stopped[below]:
                yield self._send(below)
            self._stopped[below] = True

    def _below(self, hop: int) -> Iterator[int]:
        for following in self._next[hop]:
            yield following
            yield from self._below(following)

    def _check(self, progress: Sequence[ChunkProgress]) -> None:
        if not self._units or not self._hops:
            raise HardwareError("a load has no units or no hops: write at least one of each")
        if len(progress) != len(self._hops):
            raise HardwareError(
                f"progress of {len(progress)} hops is given for {len(self._hops)} hops: write one for each"
            )
        for hop, part in enumerate(progress):
            room = self._size_bytes(hop, part.chunks) if 0 <= part.chunks < len(self._chunks) else 0
            if not (0 <= part.chunks <= len(self._chunks) and 0 <= part.partial_bytes <= room):
                raise HardwareError(
                    f"{part} does not fit a load of {len(self._chunks)} chunks: write what an earlier plan's "
                    "progress() returned, with the same units and chunk_bytes"
                )


def _after(index: int, hop: Hop) -> tuple[int, ...]:
    """The hops that a hop waits for; () if it starts at the source."""
    wanted = index - 1 if hop.after is None else hop.after
    if isinstance(wanted, int):
        wanted = () if wanted == SOURCE else (wanted,)
    if any(not 0 <= earlier < index for earlier in wanted):
        raise HardwareError(f"hop {index} starts after hop {hop.after}: write an earlier one, or {SOURCE}")
    return wanted
