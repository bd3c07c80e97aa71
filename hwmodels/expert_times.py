"""Seconds of the experts of a step over its tokens: measured by activated experts, and routed."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.llm_shape import LlmShape
from hwmodels.parallelism import Parallelism
from hwmodels.profile import Exchange, ExpertTable, Floats, Lattice, OpTables, Profile
from hwmodels.routing import Routing

EXCHANGE_LABEL: Final = "all-gather and reduce-scatter of "


class ExpertTimes:
    """The part of a step that all ranks do together: exchange, the slowest rank's experts, exchange.

    With data-parallel engines vLLM 0.19.0 gathers the hidden states and choices of all engines on every rank
    before the experts and sums the results back behind them (``all2all_backend`` allgather_reducescatter, its
    default whatever links there are: AgRsAll2AllManager, an NCCL all-gather and reduce-scatter per layer).
    Without them there is nothing to exchange: what tensor- or expert-parallel ranks of one engine add up is
    the all-reduce behind the MLP.
    """

    __slots__ = ("_seconds", "experts_s", "labels", "max_tokens", "moved_s", "source")

    def __init__(
        self, table: ExpertTable, routing: Routing, exchange: Exchange | None = None, gpu: str = ""
    ) -> None:
        last = table.lattice.axes[0][-1]
        if exchange is not None:
            last = min(last, exchange.curve.counts[-1])
        tokens = np.arange(1, last + 1, dtype=np.float64)
        seconds = _slowest_s(table, routing, tokens)
        moved = np.zeros(len(tokens))
        if exchange is not None:
            moved = np.interp(tokens, exchange.curve.counts, exchange.curve.seconds)
        # Of experts and of exchange, at 0, 1, ... tokens.
        self.experts_s: Floats = np.concatenate([[0.0], np.maximum.accumulate(seconds)])
        self.moved_s: Floats = np.concatenate([[0.0], np.maximum.accumulate(moved)])
        self._seconds: list[float] = (self.experts_s + self.moved_s).tolist()
        self.max_tokens = last
        self.source = _source(table, routing, exchange)
        found = exchange is not None and exchange.source
        self.labels: tuple[str, ...] = (
            (f"{EXCHANGE_LABEL}{exchange.ranks} {gpu}: {found}",) if exchange is not None else ()
        )

    def seconds(self, tokens: int) -> float:
        """Seconds of a step in which all ranks together have ``tokens``; 0 of none."""
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


def expert_times(
    profile: Profile, llm: LlmShape, parallelism: Parallelism, skew: float = 0.0
) -> ExpertTimes | None:
    """Those of a profile for one way to share the experts; None for a dense model.

    HardwareError says which table is missing.
    """
    if llm.experts is None:
        return None
    routing = Routing(llm.experts.count, llm.experts.per_token, skew)
    gpu = profile.stamp.gpu
    table = _table(profile.tables, llm.name, gpu, parallelism)
    if parallelism.dp == 1:
        return ExpertTimes(table, routing)
    for exchange in profile.tables.exchange:
        if exchange.ranks == parallelism.dp:
            return ExpertTimes(table, routing, exchange, gpu)
    raise HardwareError(
        f"the profile has no all-gather and reduce-scatter times between {parallelism.dp} {gpu}: import it "
        "with aiconfigurator=FOLDER, the folder of that GPU, which has some for 2, 4 and 8"
    )


def _table(tables: OpTables, llm: str, gpu: str, parallelism: Parallelism) -> ExpertTable:
    wanted = (parallelism.expert_tp, parallelism.expert_ep)
    there = {(one.expert_tp, one.expert_ep): one for one in tables.experts}
    if wanted not in there:
        words = {True: "whole experts on each of {1} GPUs", False: "each expert on {0} GPUs"}
        known = ", ".join(words[one[1] > 1].format(*one) for one in sorted(there)) or "none at all"
        raise HardwareError(
            f"no expert times for {llm} on {gpu} with {words[wanted[1] > 1].format(*wanted)}: the profile "
            f"has {known}; import it with aiconfigurator=FOLDER, the folder of that GPU"
        )
    return there[wanted]


def _slowest_s(table: ExpertTable, routing: Routing, tokens: Floats) -> Floats:
    """The rank with most work and most activated experts; both are expected values."""
    ranks = table.expert_ep
    load = tokens * routing.slowest_load(tokens, ranks)
    return at_points(table.lattice, load, routing.slowest_activated(tokens, ranks))


def at_points(lattice: Lattice, tokens: Floats, activated: Floats) -> Floats:
    """Straight lines over tokens and over activated experts; beyond the last tokens their line goes on.

    So many experts that few tokens could not choose them were not measured with few tokens: there the time of
    the fewest tokens that could holds, as reading the experts takes nearly all of it.
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
    """Column by column (one number of experts), what is missing at few tokens is that at the next more."""
    filled = values.copy()
    for row in range(len(filled) - 2, -1, -1):
        gaps = np.isnan(filled[row])
        filled[row, gaps] = filled[row + 1, gaps]
    if np.isnan(filled).any():
        raise HardwareError(
            "the expert table has numbers of activated experts without a time at the most tokens; measure it"
        )
    return filled


def _place(lines: Floats, at: Floats, beyond: bool) -> tuple[npt.NDArray[np.intp], Floats]:
    """The line before each value, and the share of the way to the next; 0 before the first line."""
    low = np.clip(np.searchsorted(lines, at, side="right") - 1, 0, max(len(lines) - 2, 0))
    gap = lines[np.minimum(low + 1, len(lines) - 1)] - lines[low]
    share = np.maximum((at - lines[low]) / np.where(gap > 0.0, gap, 1.0), 0.0)
    return low, share if beyond else np.minimum(share, 1.0)


def _source(table: ExpertTable, routing: Routing, exchange: Exchange | None) -> str:
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
    """(tokens, activated experts, seconds) of everything measured."""
    tokens, experts = lattice.axes
    return [
        (tokens[row], experts[column], float(lattice.values[row, column]))
        for row, column in np.argwhere(~np.isnan(lattice.values)).tolist()
    ]
