"""Parallel loads of shards; a unit is complete when every load has brought its shard."""

from collections.abc import Callable, Mapping, Sequence

from hwmodels.errors import HardwareError
from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import ChunkProgress, ChunkSend, LoadStep, MissingUnits, Stopped, UnitArrival


class Ranks:
    """Chains of the same units and the same hops, each for one shard; chain r has ``rank=r``.

    places: hop -> the number reported for arrivals there; None: every hop by its own number. Arrivals on
    other hops, and units present at the beginning, are not reported. Raises HardwareError.
    """

    __slots__ = ("_chains", "_joined", "_places")

    def __init__(self, chains: Sequence[Chain], places: Mapping[int, int] | None = None) -> None:
        if not chains:
            raise HardwareError("a load has no rank: write one chain for each shard")
        names = {tuple(unit.name for unit in chain.units) for chain in chains}
        hops = {chain.hops for chain in chains}
        if len(names) > 1 or len(hops) > 1:
            raise HardwareError(
                "the ranks load different units or over different hops: give all ranks the same"
            )
        self._chains = tuple(chains)
        self._places = {hop: hop for hop in range(min(hops))} if places is None else dict(places)
        self._joined = {hop: self._whole(hop) for hop in self._places}

    @property
    def done(self) -> bool:
        """Whether every rank has finished."""
        return all(chain.done for chain in self._chains)

    def begin(self) -> list[ChunkSend]:
        """Begin once; returns the first flows of all ranks."""
        return [send for chain in self._chains for send in chain.begin()]

    def finished(self, rank: int, hop: int, chunk: int) -> LoadStep:
        """Handle the end of the flow of ``chunk`` over ``hop`` of ``rank``; the last shard ends a unit."""
        step = self._chains[rank].finished(hop, chunk)
        if not step.arrivals or hop not in self._places:
            return LoadStep(step.sends, ())
        units = self._chains[rank].units
        before, self._joined[hop] = self._joined[hop], self._whole(hop)
        place = self._places[hop]
        return LoadStep(
            step.sends,
            tuple(UnitArrival(place, unit, units[unit].layer) for unit in range(before, self._joined[hop])),
        )

    def whole_units(self, hop: int) -> int:
        """How many units, from the first on, every rank has at the hop's end."""
        return self._whole(hop)

    def progress(self, hop: int) -> tuple[ChunkProgress, ...]:
        """What is at the hop's end, rank by rank."""
        return tuple(chain.progress(hop) for chain in self._chains)

    def missing(self, hop: int) -> MissingUnits:
        """What the hop's end still lacks: the bytes of all ranks, the units that any rank lacks."""
        parts = [chain.missing(hop) for chain in self._chains]
        longest = max(parts, key=lambda part: len(part.units))
        return MissingUnits(hop, sum(part.size_bytes for part in parts), longest.units)

    def drop_tail(self, hop: int) -> Stopped:
        """As ``Chain.drop_tail``, on every rank."""
        return self._stop(lambda chain: chain.drop_tail(hop))

    def cut(self, hop: int) -> Stopped:
        """As ``Chain.cut``, on every rank: an instance that lost one rank serves no more."""
        return self._stop(lambda chain: chain.cut(hop))

    def delivered(self, rank: int, hop: int, size_bytes: float) -> None:
        """As ``Chain.delivered``, for one rank."""
        self._chains[rank].delivered(hop, size_bytes)

    def _whole(self, hop: int) -> int:
        return min(chain.whole_units(hop) for chain in self._chains)

    def _stop(self, stop: Callable[[Chain], Stopped]) -> Stopped:
        stopped = [stop(chain) for chain in self._chains]
        lacking = tuple(self.missing(missing.hop) for missing in stopped[0].lacking)
        return Stopped(tuple(send for one_rank in stopped for send in one_rank.aborts), lacking)
