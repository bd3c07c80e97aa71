"""Seconds of the experts of a step over its tokens: measured by activated experts, and routed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Exchange, ExpertTable, Floats, Lattice, Profile
from hwmodels.step_times.expert_lines import ExpertLines, fit_expert_lines
from hwmodels.step_times.routing import Routing

EXCHANGE_LABEL: Final = "all-gather and reduce-scatter of "


class ExpertTimes:
    """The part of a step that all ranks do together: exchange, the slowest rank's experts, exchange.

    With data-parallel engines vLLM 0.19.0 gathers the hidden states and choices of all engines on every rank
    before the experts and sums the results after them (``all2all_backend`` allgather_reducescatter, its
    default for all links: AgRsAll2AllManager, an NCCL all-gather and reduce-scatter per layer). Without
    data-parallel engines there is no exchange: the all-reduce after the MLP adds up the results of one
    engine's tensor- or expert-parallel ranks.
    """

    __slots__ = ("_seconds", "experts_s", "labels", "max_tokens", "moved_s", "source")

    def __init__(
        self,
        table: ExpertTable | ExpertLines,
        routing: Routing,
        exchange: Exchange | None = None,
        gpu: str = "",
    ) -> None:
        last = table.last_tokens if isinstance(table, ExpertLines) else table.lattice.axes[0][-1]
        moved = np.zeros(1)
        if exchange is not None:
            counts = np.arange(1, exchange.curve.counts[-1] + 1)
            moved = np.interp(counts, exchange.curve.counts, exchange.curve.seconds)
            last = min(last, len(counts))
        tokens = np.arange(1, last + 1, dtype=np.float64)
        # Experts and exchange, at 0, 1, ... tokens; the exchange covers more tokens.
        self.experts_s: Floats = _from_none(_slowest_s(table, routing, tokens))
        self.moved_s: Floats = _from_none(moved)
        moved_s = self.moved_s[: last + 1] if exchange is not None else 0.0
        self._seconds: list[float] = (self.experts_s + moved_s).tolist()
        self.max_tokens = last
        self.source = _source(table, routing, exchange)
        found = exchange is not None and exchange.source
        self.labels: tuple[str, ...] = (
            (f"{EXCHANGE_LABEL}{exchange.ranks} {gpu}: {found}",) if exchange is not None else ()
        )

    def seconds(self, tokens: int) -> float:
        """Seconds of a step in which all ranks together have ``tokens``; 0 for no tokens."""
        try:
            return self._seconds[tokens]
        except IndexError:
            raise HardwareError(
                f"a step of {tokens} tokens of all engines is beyond the {self.max_tokens} for which expert "
                "times were measured; lower the engine's max_num_batched_tokens"
            ) from None

    def by_tokens(self) -> Floats:
        """Seconds at 0, 1, ... ``max_tokens``."""
        return np.array(self._seconds)


@dataclass(frozen=True, slots=True)
class SharedExperts:
    """All known ways to share a model's experts between GPUs, and the exchange between engines.

    ``holder``: the source, in words; ``error_band``: the error of the times.
    """

    gpu: str
    ways: tuple[ExpertTable | ExpertLines, ...]
    exchange: tuple[Exchange, ...]
    holder: str
    error_band: str = ""

    def times(self, llm: LlmShape, parallelism: Parallelism, skew: float = 0.0) -> ExpertTimes:
        """The times of one way to share; HardwareError names the missing table."""
        assert llm.experts is not None, "a mixture of experts"
        routing = Routing(llm.experts.count, llm.experts.per_token, skew)
        table = self._way(llm.name, parallelism)
        if parallelism.dp == 1:
            return ExpertTimes(table, routing)
        for exchange in self.exchange:
            if exchange.ranks == parallelism.dp:
                return ExpertTimes(table, routing, exchange, self.gpu)
        raise HardwareError(
            f"{self.holder} has no all-gather and reduce-scatter times between {parallelism.dp} {self.gpu}: "
            "import a profile with aiconfigurator=FOLDER, that GPU's folder, which has times for 2, 4 and 8"
        )

    def _way(self, llm: str, parallelism: Parallelism) -> ExpertTable | ExpertLines:
        wanted = (parallelism.expert_tp, parallelism.expert_ep)
        there = {(one.expert_tp, one.expert_ep): one for one in self.ways}
        if wanted not in there:
            known = ", ".join(_way_text(*one) for one in sorted(there)) or "none at all"
            raise HardwareError(
                f"no expert times for {llm} on {self.gpu} with {_way_text(*wanted)}: {self.holder} has "
                f"{known}; import a profile with aiconfigurator=FOLDER, the folder of that GPU"
            )
        return there[wanted]


def _way_text(expert_tp: int, expert_ep: int) -> str:
    if expert_ep > 1:
        return f"whole experts on each of {expert_ep} GPUs"
    return f"each expert on {expert_tp} GPU{'s' if expert_tp > 1 else ''}"


def _from_none(seconds: Floats) -> Floats:
    """The seconds with 0 for no tokens in front, made non-decreasing."""
    found: Floats = np.concatenate([[0.0], np.maximum.accumulate(seconds)])
    return found


def experts_of(profile: Profile) -> SharedExperts:
    """The measured experts of a profile."""
    tables, stamp = profile.tables, profile.stamp
    return SharedExperts(stamp.gpu, tables.experts, tables.exchange, "the profile", stamp.error_band)


def lined(profile: Profile) -> SharedExperts:
    """The same experts as fitted lines."""
    lines = tuple(fit_expert_lines(table) for table in profile.tables.experts)
    return replace(experts_of(profile), ways=lines)


def _slowest_s(table: ExpertTable | ExpertLines, routing: Routing, tokens: Floats) -> Floats:
    """The rank with most work and most activated experts; both are expected values."""
    ranks = table.expert_ep
    load = tokens * routing.slowest_load(tokens, ranks)
    activated = routing.slowest_activated(tokens, ranks)
    if isinstance(table, ExpertLines):
        return table.seconds(load, activated)
    return at_points(table.lattice, load, activated)


def at_points(lattice: Lattice, tokens: Floats, activated: Floats) -> Floats:
    """Linear interpolation over tokens and over activated experts; extrapolated beyond the last tokens.

    Few tokens cannot choose many experts, so those points were not measured. There the time of the fewest
    tokens that could is used, since reading the experts takes nearly all of it.
    """
    lines, experts = (np.array(axis, dtype=np.float64) for axis in lattice.axes)
    values = _filled(lattice.values)
    low, share = _place(lines, tokens, beyond=True)
    first, part = _place(experts, activated, beyond=False)
    upper, right = np.minimum(low + 1, len(lines) - 1), np.minimum(first + 1, len(experts) - 1)
    below = values[low, first] + part * (values[low, right] - values[low, first])
    above = values[upper, first] + part * (values[upper, right] - values[upper, first])
    found: Floats = below + share * (above - below)
    return found


def _filled(values: Floats) -> Floats:
    """Column by column (one number of experts), fill gaps at few tokens from the next larger count."""
    filled = values.copy()
    for row in range(len(filled) - 2, -1, -1):
        gaps = np.isnan(filled[row])
        filled[row, gaps] = filled[row + 1, gaps]
    if np.isnan(filled).any():
        raise HardwareError(
            "the expert table lacks times at the most tokens for some counts of activated experts; add them"
        )
    return filled


def _place(lines: Floats, at: Floats, beyond: bool) -> tuple[npt.NDArray[np.intp], Floats]:
    """The line before each value, and the fraction of the way to the next; 0 before the first line."""
    low = np.clip(np.searchsorted(lines, at, side="right") - 1, 0, max(len(lines) - 2, 0))
    gap = lines[np.minimum(low + 1, len(lines) - 1)] - lines[low]
    share = np.maximum((at - lines[low]) / np.where(gap > 0.0, gap, 1.0), 0.0)
    return low, share if beyond else np.minimum(share, 1.0)


def _source(table: ExpertTable | ExpertLines, routing: Routing, exchange: Exchange | None) -> str:
    popularity = "all alike" if routing.skew == 0.0 else f"popularity of rank ** -{routing.skew:g}"
    ranks = f"; the slowest of {table.expert_ep} ranks" if table.expert_ep > 1 else ""
    moved = f"; exchange: {exchange.source}" if exchange is not None else ""
    return (
        f"experts: tokens choose {routing.per_token} of {routing.count} independently, {popularity} (assumed)"
        f"{ranks}{moved}"
    )


def with_experts(dense: Floats, times: ExpertTimes) -> Floats:
    """Seconds by tokens of dense layers and experts, to the end of the shorter table."""
    experts = times.by_tokens()
    last = min(len(dense), len(experts))
    return dense[:last] + experts[:last]


def lattice_points(lattice: Lattice) -> Sequence[tuple[int, int, float]]:
    """(tokens, activated experts, seconds) of all measured points."""
    tokens, experts = lattice.axes
    return [
        (tokens[row], experts[column], float(lattice.values[row, column]))
        for row, column in np.argwhere(~np.isnan(lattice.values)).tolist()
    ]
