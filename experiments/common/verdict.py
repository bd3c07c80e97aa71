"""When a reproduced number counts: its direction holds over the seeds and its size lies within the band.

A ratio of two quantities claims a change: "50 % shorter" (0.5) a saving of 0.5, "13.5 times" an increase of
12.5. Both the ratio and the change must be within the factor of the paper's: 0.712 for 0.5 has a near ratio
(1.42) and a far saving (0.288, 1.74 times less), so it is out. A change of less than 5 % is a direction.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Final

from experiments.common.figure import FAILED, HELD, FigureRow, Judged, Kind, Verdict
from experiments.common.paired import Estimated, difference_of, mean_of, ratio_of
from servetwin.report.number_text import number

BAND: Final = 1.5
"""The same for every figure: a number counts within this factor of the paper's, once its direction holds."""
SMALL: Final = 0.05
"""A claimed change of less than this share is judged by its direction alone."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim, as the range of the compared number (``low`` equals ``high`` for a single number).

    slack: factor by which ours may lie outside. against: 1 for a ratio of two quantities, whose distance from
    1 (a saving or an increase) is held to the factor too, on the paper's side; None for a number that
    compares nothing. strict: the ends of the range are not in it. kind: who says it, and whether with a
    number. paper: the number that ours is divided by, if not an end of the range.
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
        assert self.against is None or not self.low <= self.against <= self.high, f"{self.text}: no change"

    @property
    def is_direction(self) -> bool:
        """Whether the claim is a change of less than 5 %: its direction is judged, its size is not."""
        return self.against is not None and max(self._changes()) < SMALL * self.against - _ROUNDING

    def ratio(self, ours: float) -> float:
        """Ours over the nearest end of the range, 1 within it; over the limit where only that is given."""
        if self.paper is not None:
            return ours / self.paper
        if self.low == -math.inf:
            return ours / self.high
        return ours / min(max(ours, self.low), self.high) if ours else 0.0

    def verdict(self, ours: float) -> Verdict:
        """Return the verdict on an exact number, which has no error."""
        if self.is_direction:
            return "direction held" if self._change(ours) > 0 else "direction not held"
        return "in band" if self._holds(ours, ours) and self._change_holds(ours) else "out"

    def over_seeds(self, estimate: Estimated) -> tuple[Verdict, str]:
        """(verdict, what decided it) of a number measured under several seeds; the second may be empty.

        The size of a paper's number is judged by the mean, its direction by the interval. A limit, a
        direction or a reading of words holds when the whole interval does; with both sides it is not shown.
        """
        if estimate.low is None or estimate.high is None:
            if self.kind == "paper_number" and not self.is_direction:
                return self.verdict(estimate.value), self.change_fails(estimate.value)
            return self._not_shown(), "one seed has no interval"
        if self.kind == "paper_number" and math.isfinite(self.low) and math.isfinite(self.high):
            return self._size(estimate.value, estimate.low, estimate.high)
        if self._holds(estimate.low, estimate.high):
            return "in band", ""
        if self._fails(estimate.low, estimate.high):
            return "out", ""
        return "not shown", "the interval lies on both sides of what is said"

    def change_fails(self, ours: float) -> str:
        """Return why ours is out if its change is, and not its ratio; else an empty text."""
        if self.against is None or self.verdict(ours) not in FAILED:
            return ""
        if self._change(ours) <= 0:
            return f"on the other side of {self.against:g}" if ours != self.against else "no change"
        if not self._holds(ours, ours):
            return ""
        word, least, most = "saving" if self.high < self.against else "increase", *self._changes()
        nearest = min(max(self._change(ours), least), most)
        return f"{word} {self._change(ours):.1%} against {nearest:.1%}"

    def _size(self, mean: float, low: float, high: float) -> tuple[Verdict, str]:
        verdict = self.verdict(mean)
        if verdict in HELD and self.against is not None and low <= self.against <= high:
            return self._not_shown(), f"the interval contains {self.against:g}, so no direction is shown"
        return verdict, self.change_fails(mean)

    def _not_shown(self) -> Verdict:
        return "direction not shown" if self.is_direction else "not shown"

    def _holds(self, low: float, high: float) -> bool:
        least, most = self.low / self.slack, self.high * self.slack
        return least < low and high < most if self.strict else least <= low and high <= most

    def _fails(self, low: float, high: float) -> bool:
        least, most = self.low / self.slack, self.high * self.slack
        return high <= least or low >= most if self.strict else high < least or low > most

    def _change_holds(self, ours: float) -> bool:
        """Whether ours is as far from ``against`` as the paper's within the factor, on the same side."""
        if self.against is None:
            return True
        least, most = self._changes()
        return least / self.slack <= self._change(ours) <= most * self.slack

    def _change(self, ours: float) -> float:
        """The saving or the increase, below 0 on the side that is not the paper's."""
        against = self.against or 0.0
        return against - ours if self.high < against else ours - against

    def _changes(self) -> tuple[float, float]:
        """(the smallest, the largest) saving or increase that the claim allows."""
        least, most = sorted((self._change(self.low), self._change(self.high)))
        return least, most

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


def times(factor: float, text: str | None = None, slack: float = BAND) -> Claim:
    """Return the claim that ours is ``factor`` times the other: above 1 an increase, below 1 a saving.

    "1 times" claims no change, so that its ratio alone is held to the factor.
    """
    against = None if factor == 1 else 1.0
    return Claim(
        text or f"{factor:g} times", factor, factor, slack=slack, against=against, kind="paper_number"
    )


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
    decided = claim.change_fails(ours)
    return FigureRow(
        name=name,
        paper=claim.text,
        ours=shown,
        ratio=claim.ratio(ours),
        verdict=claim.verdict(ours),
        stand_in=stand_in,
        why="; ".join(filter(None, (decided, why))),
        kind=claim.kind,
        judged=_judged(claim, Estimated(ours, None, None), exact=True),
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
    shown = f"{estimate.shown(write)} {unit}".rstrip()
    why = why or (f"measured {shown}" if verdict in FAILED else "")
    return FigureRow(
        name=name,
        paper=claim.text,
        ours=shown,
        ratio=claim.ratio(estimate.value),
        verdict=verdict,
        stand_in=stand_in,
        why="; ".join(filter(None, (decided, why))),
        kind=claim.kind,
        judged=_judged(claim, estimate, exact=False),
    )


def judged_again(row: FigureRow) -> Verdict:
    """Return the verdict by today's rule, from the numbers that the row keeps; without them its own."""
    return row.verdict if row.judged is None else _verdict_of(row.judged, row.kind, row.judged.against)


def by_ratio_alone(row: FigureRow) -> Verdict:
    """Return what the verdict would be if savings and increases were not held to the factor.

    The ratio is within the factor, ours is on the paper's side of 1 and the interval does not contain 1.
    """
    kept = row.judged
    if kept is None or kept.against is None:
        return judged_again(row)
    verdict = _verdict_of(kept, row.kind, None)
    if verdict != "in band":
        return verdict
    low, high = kept.interval or (kept.ours, kept.ours)
    if kept.interval and low <= kept.against <= high:
        return "not shown"
    return "in band" if (kept.ours < kept.against) == (kept.high < kept.against) else "out"


def _judged(claim: Claim, estimate: Estimated, *, exact: bool) -> Judged:
    interval = None
    if estimate.low is not None and estimate.high is not None:
        interval = estimate.low, estimate.high
    return Judged(
        low=claim.low,
        high=claim.high,
        slack=claim.slack,
        against=claim.against,
        strict=claim.strict,
        ours=estimate.value,
        interval=interval,
        exact=exact,
    )


def _verdict_of(kept: Judged, kind: Kind, against: float | None) -> Verdict:
    claim = Claim(
        "kept", kept.low, kept.high, slack=kept.slack, against=against, strict=kept.strict, kind=kind
    )
    if kept.exact:
        return claim.verdict(kept.ours)
    return claim.over_seeds(Estimated(kept.ours, *(kept.interval or (None, None))))[0]


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
