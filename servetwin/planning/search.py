"""Searches for the least size, or the highest rate, that meets an objective: doubling, then bisection.

The search assumes that a larger size never serves worse. Where this does not hold (such as for a percentile
of few requests), it returns a size that meets the objective while the next smaller size does not, which may
not be the least.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from servetwin.planning.layout import Layout
from servetwin.planning.objective import Objective
from servetwin.planning.probe import End, probe
from servetwin.sweeps.outcome import PointOutcome

RATE_STEP: Final = 1.02  # the highest rate is found to within this factor, 2 %


@dataclass(frozen=True, slots=True)
class LayoutSearch:
    """The result of a search for one layout, with step times at one ``end`` of their range, or as modelled.

    ``gpus``: the least size that meets the objective, None if no size does. ``tried``: size in GPUs ->
    outcome of its run.
    """

    layout: Layout
    end: End
    gpus: int | None
    tried: dict[int, PointOutcome] = field(default_factory=dict)

    @property
    def outcome(self) -> PointOutcome | None:
        """The outcome of the run with ``gpus`` GPUs; None if no size meets the objective."""
        return None if self.gpus is None else self.tried[self.gpus]

    @property
    def refused(self) -> str:
        """Why the last size tried was refused, if every size was refused; empty if one ran."""
        refusals = [outcome.refused for outcome in self.tried.values()]
        return refusals[-1] if refusals and all(refusals) else ""


def least_gpus(
    *, layout: Layout, words: tuple[str, ...], objective: Objective, most_gpus: int, end: End, guess: int = 0
) -> LayoutSearch:
    """Search for the layout's least size, up to ``most_gpus`` GPUs, whose run meets the objective.

    ``guess``: the number of GPUs that the search tries first; 0 for the smallest size.
    """
    tried: dict[int, PointOutcome] = {}
    sizes = layout.sizes(most_gpus)

    def meets(index: int) -> bool:
        gpus = sizes[index]
        tried[gpus] = outcome = probe((*words, *layout.words_of(gpus)), end)
        return objective.met_by(outcome.numbers)

    first = min(max((guess - layout.least) // layout.step, 0), len(sizes) - 1) if sizes else 0
    least = first_true(meets, len(sizes), first)
    return LayoutSearch(layout, end, None if least is None else sizes[least], tried)


def first_true(meets: Callable[[int], bool], count: int, start: int = 0) -> int | None:
    """Return the least index below ``count`` for which ``meets`` returns True, None if there is none.

    ``meets`` is assumed to return False below that index and True from it on. ``start``: the index that the
    search tries first.
    """
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
    """Return two indices between which the answer lies, found from ``start`` by steps that double.

    The first does not meet (-1: the least index meets already), the second meets (``count``: the last index
    does not meet).
    """
    step = 1
    if meets(start):
        high = start
        while high > 0:
            lower = max(high - step, 0)
            if not meets(lower):
                return lower, high
            high, step = lower, step * 2
        return -1, 0
    low = start
    while low < count - 1:
        higher = min(low + step, count - 1)
        if meets(higher):
            return low, higher
        low, step = higher, step * 2
    return low, count


def highest_factor(
    meets: Callable[[float], bool], least: float = 1 / 64, most: float = 64.0, start: float = 1.0
) -> float | None:
    """Return the highest rate factor from ``least`` to ``most`` that meets, to within ``RATE_STEP``.

    None if ``least`` does not meet. ``start`` is the factor tried first.
    """
    low, high = (start, None) if meets(start) else (None, start)
    while high is None and low is not None and low < most:
        higher = min(low * 2, most)
        low, high = (higher, None) if meets(higher) else (low, higher)
    while low is None and high is not None and high > least:
        lower = max(high / 2, least)
        low, high = (lower, high) if meets(lower) else (None, lower)
    if low is None or high is None:
        return low
    while high / low > RATE_STEP:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
