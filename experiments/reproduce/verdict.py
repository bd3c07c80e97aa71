"""When a reproduced number counts: its direction holds and its size lies within the band."""

import math
from dataclasses import dataclass
from typing import Final

from experiments.reproduce.figure import Row, Verdict
from experiments.table import number

BAND: Final = 1.5
"""The same for every figure: a number counts within this factor of the paper's, once its direction holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says, as a range of the number compared (``low`` equal to ``high`` for a single one).

    slack: factor by which ours may lie outside. against: a value that ours must be on the same side of as the
    paper's (1 for a ratio: shorter stays shorter); None where there is no direction.
    """

    text: str
    low: float
    high: float
    slack: float = BAND
    against: float | None = None

    def __post_init__(self) -> None:
        assert self.low <= self.high and self.high > 0 and self.slack >= 1, f"{self.text}: no such claim"

    def ratio(self, ours: float) -> float:
        """Ours over the nearest end of the range, 1 within it; over the limit where only that is given."""
        if self.low == -math.inf:
            return ours / self.high
        return ours / min(max(ours, self.low), self.high) if ours else 0.0

    def verdict(self, ours: float) -> Verdict:
        """Whether ours counts."""
        if self.against is not None and (ours < self.against) != (self.high < self.against):
            return "out"
        within = self.low / self.slack <= ours <= self.high * self.slack
        return "in band" if within else "out"


def shorter(least_percent: float, most_percent: float | None = None, what: str = "shorter") -> Claim:
    """A quantity is so many per cent shorter than the other: a ratio of both, below 1."""
    most = least_percent if most_percent is None else most_percent
    shown = f"{least_percent:g}" if most == least_percent else f"{least_percent:g} to {most:g}"
    return Claim(f"{shown} % {what}", 1 - most / 100, 1 - least_percent / 100, against=1.0)


def times(factor: float, text: str | None = None) -> Claim:
    """A quantity is ``factor`` times the other, above or below 1."""
    return Claim(text or f"{factor:g} times", factor, factor, against=1.0)


def about(value: float, text: str) -> Claim:
    """A size of its own."""
    return Claim(text, value, value)


def within(low: float, high: float, text: str) -> Claim:
    """A range, ends included, without slack."""
    return Claim(text, low, high, slack=1.0)


def at_most(limit: float, text: str) -> Claim:
    """A limit, without slack."""
    return Claim(text, -math.inf, limit, slack=1.0)


def at_least(limit: float, text: str) -> Claim:
    """A lower limit, without slack."""
    return Claim(text, limit, math.inf, slack=1.0)


def judged(name: str, claim: Claim, ours: float, shown: str, stand_in: str, why: str) -> Row:
    """The row of one claim. shown: ours as people read it."""
    ratio = claim.ratio(ours)
    return Row(name, claim.text, shown, ratio, claim.verdict(ours), stand_in, why)


def not_comparable(name: str, paper: str, stand_in: str, why: str) -> Row:
    """A row without a number of ours."""
    return Row(name, paper, "", None, "not comparable", stand_in, why)


def in_order(name: str, wanted: tuple[str, ...], found: dict[str, float], unit: str, stand_in: str) -> Row:
    """Whether the quantities come in the paper's order, the smallest first."""
    order = tuple(sorted(found, key=lambda label: found[label]))
    sizes = ", ".join(f"{label} {number(found[label])} {unit}".rstrip() for label in order)
    verdict: Verdict = "in band" if order == wanted else "out"
    return Row(name, " < ".join(wanted), " < ".join(order), None, verdict, stand_in, sizes)
