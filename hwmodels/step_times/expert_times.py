"""Seconds of the experts of a step over its tokens: measured by activated experts, and routed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Exchange, ExpertTable, Floats, Lattice, Profile
from hwmodels.step_times.expert_lines import ExpertLines, fit_expert_lines

# Which experts the tokens of a step choose: expected numbers under a declared popularity of the experts.
# Routing per step is not recorded anywhere, so it is assumed: tokens choose independently of each other,
# each ``per_token`` different experts. Uniform popularity is what training aims at (a loss or a bias
# balances the load of experts: Switch Transformers, section 2.2; DeepSeek-V3 report, section 2.1.2). A
# skewed one is an option, with the r-th expert chosen in proportion to r ** -skew.


@dataclass(frozen=True, slots=True)
class Routing:
    """A token chooses ``per_token`` of ``count`` experts; ``skew`` 0: all experts alike."""

    count: int
    per_token: int
    skew: float = 0.0

    def shares(self) -> Floats:
        """The share of tokens that choose each expert; they add up to ``per_token``."""
        if self.per_token == self.count:
            return np.ones(self.count)
        if self.skew == 0.0:
            return np.full(self.count, self.per_token / self.count)
        return _skewed(self.count, self.per_token, self.skew)

    def activated(self, tokens: Floats) -> Floats:
        """Expected number of different experts that ``tokens`` tokens choose.

        Uniform: count * (1 - (1 - per_token / count) ** tokens).
        """
        return _activated(self, np.asarray(tokens, dtype=np.float64).tobytes())

    def slowest_load(self, tokens: Floats, ranks: int) -> Floats:
        """Expected work of the busiest of ``ranks``, in multiples of the mean; experts are placed at random.

        Each rank has count / ranks experts. Their load varies with the tokens (hypergeometric, a token takes
        each expert once) and with which experts they are; the sums are taken as normal.
        """
        if ranks == 1:
            return np.ones(len(tokens))
        held = self.count / ranks
        apart = (1.0 - 1.0 / ranks) * held
        placed = apart * float(np.var(self.shares())) * self.count / (self.count - 1)
        chosen = self.per_token * apart / self.count * (self.count - self.per_token) / (self.count - 1)
        mean = np.asarray(tokens, dtype=np.float64) * self.per_token / ranks
        spread = np.sqrt(tokens * chosen + np.square(tokens) * placed)
        most = np.asarray(tokens, dtype=np.float64) * min(self.per_token, held)
        return np.minimum(mean + _largest_of(ranks) * spread, most) / mean

    def slowest_activated(self, tokens: Floats, ranks: int) -> Floats:
        """Expected number of activated experts on the rank that has most of them."""
        whole = self.activated(tokens)
        if ranks == 1:
            return whole
        share = 1.0 / ranks
        variance = whole * share * (1.0 - share) * (self.count - whole) / (self.count - 1)
        most = np.minimum(self.count / ranks, whole)
        return np.minimum(whole / ranks + _largest_of(ranks) * np.sqrt(variance), most)


@lru_cache(16)
def _activated(routing: Routing, tokens: bytes) -> Floats:
    """By every expert's share: a power for each expert and count, the same for every GPU and split."""
    missed: Floats = (1.0 - routing.shares())[:, None] ** np.frombuffer(tokens)
    experts: Floats = routing.count - missed.sum(axis=0)
    experts.flags.writeable = False
    return experts


@cache
def _skewed(count: int, per_token: int, skew: float) -> Floats:
    """Choosing without repetition flattens popularity: 1 - exp(-rate * weight), adding up to per_token."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
    low, high = 0.0, 1.0
    while (1.0 - np.exp(-high * weights)).sum() < per_token:
        high *= 2.0
    for _ in range(100):
        rate = (low + high) / 2.0
        low, high = (rate, high) if (1.0 - np.exp(-rate * weights)).sum() < per_token else (low, rate)
    seconds: Floats = 1.0 - np.exp(-high * weights)
    return seconds


@cache
def _largest_of(ranks: int) -> float:
    """Expected maximum of ``ranks`` normal numbers that add up to 0, in standard deviations of one."""
    at = np.linspace(-8.0, 8.0, 4001)
    below = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in at]) ** ranks
    return float((np.diff(below) * (at[:-1] + at[1:]) / 2.0).sum()) / math.sqrt(1.0 - 1.0 / ranks)


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
        self, experts_s: Floats, moved_s: Floats, *, source: str, labels: tuple[str, ...] = ()
    ) -> None:
        """Seconds of the experts and of the exchange at 0, 1, ... tokens; the exchange covers no fewer."""
        self.experts_s, self.moved_s = experts_s, moved_s
        self._seconds: list[float] = (experts_s + moved_s[: len(experts_s)]).tolist()
        self.max_tokens = len(experts_s) - 1
        self.source, self.labels = source, labels

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


def routed_times(
    table: ExpertTable | ExpertLines, routing: Routing, exchange: Exchange | None = None, gpu: str = ""
) -> ExpertTimes:
    """Times by activated experts, at the tokens that the table covers, or the exchange if there is one.

    Engines side by side bring more tokens than one engine's table has: beyond its end every expert is read,
    and the time goes on in the line of its last tokens.
    """
    last = table.last_tokens if isinstance(table, ExpertLines) else table.lattice.axes[0][-1]
    moved: Floats = np.zeros(last)
    labels: tuple[str, ...] = ()
    if exchange is not None:
        counts = np.arange(1, exchange.curve.counts[-1] + 1)
        moved = np.interp(counts, exchange.curve.counts, exchange.curve.seconds)
        last = len(counts)
        labels = (f"{EXCHANGE_LABEL}{exchange.ranks} {gpu}: {exchange.source}",)
    tokens = np.arange(1, last + 1, dtype=np.float64)
    experts_s = _from_none(_slowest_s(table, routing, tokens))
    return ExpertTimes(experts_s, _from_none(moved), source=_source(table, routing, exchange), labels=labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExperts:
    """All known ways to share a model's experts between GPUs, and the exchange between engines.

    ``holder``: the source, in words; ``error_band``: the error of the times. ``whole``: times of the one way
    that was asked for, whichever experts tokens choose.
    """

    gpu: str
    ways: tuple[ExpertTable | ExpertLines, ...]
    exchange: tuple[Exchange, ...]
    holder: str
    error_band: str = ""
    whole: ExpertTimes | None = None

    def times(self, llm: LlmShape, parallelism: Parallelism, skew: float = 0.0) -> ExpertTimes:
        """The times of one way to share; HardwareError names the missing table."""
        assert llm.experts is not None, "a mixture of experts"
        if self.whole is not None:
            return self.whole
        routing = Routing(llm.experts.count, llm.experts.per_token, skew)
        table = self._way(llm.name, parallelism)
        if parallelism.dp == 1:
            return routed_times(table, routing)
        for exchange in self.exchange:
            if exchange.ranks == parallelism.dp:
                return routed_times(table, routing, exchange, self.gpu)
        raise HardwareError(
            f"{self.holder} has no all-gather and reduce-scatter times between {parallelism.dp} {self.gpu}: "
            "import a profile with aiconfigurator=FOLDER, that GPU's folder, which has times for 2, 4 and 8"
        )

    def knows(self, parallelism: Parallelism) -> bool:
        """Whether there are times of this way to share, and of the exchange that it needs."""
        way = (parallelism.expert_tp, parallelism.expert_ep)
        there = any((one.expert_tp, one.expert_ep) == way for one in self.ways)
        return there and (parallelism.dp == 1 or any(one.ranks == parallelism.dp for one in self.exchange))

    def _way(self, llm: str, parallelism: Parallelism) -> ExpertTable | ExpertLines:
        wanted = (parallelism.expert_tp, parallelism.expert_ep)
        there = {(way.expert_tp, way.expert_ep): way for way in self.ways}
        if wanted not in there:
            known = ", ".join(_way_text(*way) for way in sorted(there)) or "none at all"
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
    curve: Floats = np.concatenate([[0.0], np.maximum.accumulate(seconds)])
    return curve


def experts_of(profile: Profile) -> SharedExperts:
    """The measured experts of a profile."""
    tables, stamp = profile.tables, profile.stamp
    return SharedExperts(
        gpu=stamp.gpu,
        ways=tables.experts,
        exchange=tables.exchange,
        holder="the profile",
        error_band=stamp.error_band,
    )


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
    curve: Floats = below + share * (above - below)
    return curve


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
