"""The least size, or the highest rate, that meets an objective: doubling, then bisection.

More GPUs are assumed to serve no worse. If the border is rough (a percentile of few requests), the answer is
a size that meets the objective while the next smaller one does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from servetwin.planning.layout import Layout
from servetwin.planning.objective import Objective
from servetwin.planning.probe import End, probe
from servetwin.sweeps.outcome import PointOutcome

RATE_STEP: Final = 1.02  # precision of the highest rate: 2 %


@dataclass(frozen=True, slots=True)
class LayoutSearch:
    """The result for a layout at one end: ``gpus`` None if no size suffices. ``tried``: size -> outcome."""

    layout: Layout
    end: End
    gpus: int | None
    tried: dict[int, PointOutcome] = field(default_factory=dict)

    @property
    def outcome(self) -> PointOutcome | None:
        """The outcome at the answer's size."""
        return None if self.gpus is None else self.tried[self.gpus]

    @property
    def refused(self) -> str:
        """Why no size ran at all; empty if one did."""
        whys = [outcome.refused for outcome in self.tried.values()]
        return whys[-1] if whys and all(whys) else ""


def least_gpus(
    *, layout: Layout, words: tuple[str, ...], objective: Objective, most_gpus: int, end: End, guess: int = 0
) -> LayoutSearch:
    """Search for the least size. ``guess``: GPUs to begin with, 0 for the smallest size."""
    tried: dict[int, PointOutcome] = {}
    sizes = layout.sizes(most_gpus)

    def meets(place: int) -> bool:
        gpus = sizes[place]
        tried[gpus] = outcome = probe((*words, *layout.words_of(gpus)), end)
        return objective.met_by(outcome.numbers)

    first = min(max((guess - layout.least) // layout.step, 0), len(sizes) - 1) if sizes else 0
    place = first_true(meets, len(sizes), first)
    return LayoutSearch(layout, end, None if place is None else sizes[place], tried)


def first_true(meets: Callable[[int], bool], count: int, start: int = 0) -> int | None:
    """Return the least place of ``count`` that meets, searching from ``start``; None if the last fails."""
    if count == 0:
        return None
    low, high = bracket(meets, count, start)
    if high == count:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def bracket(meets: Callable[[int], bool], count: int, start: int) -> tuple[int, int]:
    """Return (a failing place, or -1; the least known to meet, or ``count``), by doubling steps."""
    step = 1
    if meets(start):
        high = start
        while high > 0:
            place = max(high - step, 0)
            if not meets(place):
                return place, high
            high, step = place, step * 2
        return -1, 0
    low = start
    while low < count - 1:
        place = min(low + step, count - 1)
        if meets(place):
            return low, place
        low, step = place, step * 2
    return low, count


def highest_factor(
    meets: Callable[[float], bool], least: float = 1 / 64, most: float = 64.0, start: float = 1.0
) -> float | None:
    """Return the highest rate factor that meets, to ``RATE_STEP``; None if not even ``least`` does."""
    low, high = (start, None) if meets(start) else (None, start)
    while high is None and low is not None and low < most:
        place = min(low * 2, most)
        low, high = (place, None) if meets(place) else (low, place)
    while low is None and high is not None and high > least:
        place = max(high / 2, least)
        low, high = (place, high) if meets(place) else (None, place)
    if low is None or high is None:
        return low
    while high / low > RATE_STEP:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
