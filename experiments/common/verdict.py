"""When a reproduced number counts: its direction holds over the seeds and its size lies within the band."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Final

from experiments.common.figure import FigureRow, Kind, Verdict
from experiments.common.paired import Estimated, difference_of, mean_of, ratio_of
from servetwin.report.number_text import number

BAND: Final = 1.5
"""The same for every figure: a number counts within this factor of the paper's, once its direction holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim, as the range of the compared number (``low`` equals ``high`` for a single number).

    slack: factor by which ours may lie outside. against: a value that ours must be on the same side of as the
    paper's (1 for a ratio: shorter stays shorter); None where there is no direction. strict: the ends of the
    range are not in it. kind: who says it, and whether with a number. paper: the number that ours
    is divided by, if not an end of the range.
    """

    text: str
    low: float
    high: float
    _: KW_ONLY
    slack: float = BAND
    against: float | None = None
    strict: bool = False
    kind: Kind = "own_analysis"
    paper: float | None = None

    def __post_init__(self) -> None:
        assert self.low <= self.high and self.high > 0 and self.slack >= 1, f"{self.text}: no such claim"

    def ratio(self, ours: float) -> float:
        """Ours over the nearest end of the range, 1 within it; over the limit where only that is given."""
        if self.paper is not None:
            return ours / self.paper
        if self.low == -math.inf:
            return ours / self.high
        return ours / min(max(ours, self.low), self.high) if ours else 0.0

    def verdict(self, ours: float) -> Verdict:
        """Return the verdict on an exact number, which has no error."""
        if self.against is not None and (ours < self.against) != (self.high < self.against):
            return "out"
        return "in band" if self._holds(ours, ours) else "out"

    def over_seeds(self, estimate: Estimated) -> tuple[Verdict, str]:
        """(verdict, what decided it if that was the interval) of a number measured under several seeds.

        The size of a paper's number is judged by the mean, its direction by the interval. A limit, a
        direction or a reading of words holds when the whole interval does; with both sides it is not shown.
        """
        if estimate.low is None or estimate.high is None:
            if self.kind == "paper_number":
                return self.verdict(estimate.value), ""
            return "not shown", "one seed has no interval"
        if self.kind == "paper_number" and math.isfinite(self.low) and math.isfinite(self.high):
            return self._size(estimate.value, estimate.low, estimate.high)
        if self._holds(estimate.low, estimate.high):
            return "in band", ""
        if self._fails(estimate.low, estimate.high):
            return "out", ""
        return "not shown", "the interval lies on both sides of what is said"

    def _size(self, mean: float, low: float, high: float) -> tuple[Verdict, str]:
        if not self._holds(mean, mean):
            return "out", ""
        if self.against is not None and low <= self.against <= high:
            return "not shown", f"the interval contains {self.against:g}, so no direction is shown"
        return self.verdict(mean), ""

    def _holds(self, low: float, high: float) -> bool:
        least, most = self.low / self.slack, self.high * self.slack
        return least < low and high < most if self.strict else least <= low and high <= most

    def _fails(self, low: float, high: float) -> bool:
        least, most = self.low / self.slack, self.high * self.slack
        return high <= least or low >= most if self.strict else high < least or low > most

    def not_comparable(self, name: str, stand_in: str, why: str) -> FigureRow:
        """A row without a number of ours."""
        return FigureRow(
            name=name,
            paper=self.text,
            ours="",
            ratio=None,
            verdict="not comparable",
            stand_in=stand_in,
            why=why,
            kind=self.kind,
        )


def shorter(least_percent: float, most_percent: float | None = None, comparative: str = "shorter") -> Claim:
    """Return the claim that ours is so many per cent shorter than the other: a ratio below 1."""
    most = least_percent if most_percent is None else most_percent
    shown = f"{least_percent:g}" if most == least_percent else f"{least_percent:g} to {most:g}"
    low, high = 1 - most / 100, 1 - least_percent / 100
    return Claim(f"{shown} % {comparative}", low, high, against=1.0, kind="paper_number")


def times(factor: float, text: str | None = None) -> Claim:
    """Return the claim that ours is ``factor`` times the other; the factor may be above or below 1."""
    return Claim(text or f"{factor:g} times", factor, factor, against=1.0, kind="paper_number")


def about(value: float, text: str, kind: Kind = "paper_number") -> Claim:
    """Return the claim that a number is about ``value``."""
    return Claim(text, value, value, kind=kind)


def within(low: float, high: float, text: str, kind: Kind = "paper_number") -> Claim:
    """A range, ends included, without slack."""
    return Claim(text, low, high, slack=1.0, kind=kind)


def below(limit: float, text: str, kind: Kind) -> Claim:
    """Less than a limit, which is not less than itself."""
    return Claim(text, -math.inf, limit, slack=1.0, strict=True, kind=kind)


def at_most(limit: float, text: str, kind: Kind = "own_analysis") -> Claim:
    """A limit, without slack."""
    return Claim(text, -math.inf, limit, slack=1.0, kind=kind)


def at_least(limit: float, text: str, kind: Kind = "own_analysis") -> Claim:
    """A lower limit, without slack."""
    return Claim(text, limit, math.inf, slack=1.0, kind=kind)


def judged(name: str, claim: Claim, ours: float, shown: str, *, why: str, stand_in: str = "") -> FigureRow:
    """The row of one exact number. shown: ours as people read it."""
    ratio = claim.ratio(ours)
    return FigureRow(
        name=name,
        paper=claim.text,
        ours=shown,
        ratio=ratio,
        verdict=claim.verdict(ours),
        stand_in=stand_in,
        why=why,
        kind=claim.kind,
    )


def judged_over(
    name: str,
    claim: Claim,
    estimate: Estimated,
    *,
    why: str,
    stand_in: str = "",
    write: Callable[[float], str] = number,
    unit: str = "",
) -> FigureRow:
    """The row of one number measured under several seeds."""
    verdict, decided = claim.over_seeds(estimate)
    shown, reason = f"{estimate.shown(write)} {unit}".rstrip(), "; ".join(filter(None, (decided, why)))
    if verdict != "in band":
        reason = reason or f"measured {shown}"
    return FigureRow(
        name=name,
        paper=claim.text,
        ours=shown,
        ratio=claim.ratio(estimate.value),
        verdict=verdict,
        stand_in=stand_in,
        why=reason,
        kind=claim.kind,
    )


def in_order(
    name: str,
    wanted: Sequence[str],
    values_by_label: Mapping[str, Sequence[float]],
    *,
    unit: str,
    kind: Kind,
    stand_in: str = "",
) -> FigureRow:
    """Whether the quantities come in the order wanted, the smallest first. found: one value per seed.

    Each stands before the next when the interval of their paired ratio says so (of their difference, where a
    value is 0). One pair the wrong way round puts the order out, one pair that is undecided leaves it not
    shown.
    """
    means = {label: mean_of(values).value for label, values in values_by_label.items()}
    order = sorted(means, key=lambda label: means[label])
    sizes = ", ".join(f"{label} {number(means[label])} {unit}".rstrip() for label in order)
    steps = {
        (smaller, two): _step(values_by_label[smaller], values_by_label[two])
        for smaller, two in pairwise(wanted)
    }
    verdict: Verdict = "in band"
    if "out" in steps.values():
        verdict = "out"
    elif "not shown" in steps.values():
        verdict = "not shown"
    undecided = ", ".join(
        f"{smaller} < {two}" for (smaller, two), step in steps.items() if step == "not shown"
    )
    why = f"{sizes}; no interval shows {undecided}" if undecided else sizes
    return FigureRow(
        name=name,
        paper=" < ".join(wanted),
        ours=" < ".join(order),
        ratio=None,
        verdict=verdict,
        stand_in=stand_in,
        why=why,
        kind=kind,
    )


def _step(first: Sequence[float], two: Sequence[float]) -> Verdict:
    """Whether the first is the smaller one."""
    ratio = ratio_of(two, first)
    estimate, equal = (ratio, 1.0) if ratio else (difference_of(two, first), 0.0)
    if estimate.low is None or estimate.high is None or estimate.low <= equal <= estimate.high:
        return "not shown"
    return "in band" if estimate.low > equal else "out"
