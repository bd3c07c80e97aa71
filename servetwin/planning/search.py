"""Searches for the least size, or the highest rate, that meets an objective: doubling, then bisection.

The search assumes that a larger size never serves worse. Where this does not hold (such as for a percentile
of few requests), it returns a size that meets the objective while the next smaller size does not, which may
not be the least.
"""

from collections.abc import Callable, Generator
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
    outcome of its run. ``not_searched``: why the search ended before its answer, such as "cannot need fewer
    than 12 GPUs"; empty if it did not.
    """

    layout: Layout
    end: End
    gpus: int | None
    tried: dict[int, PointOutcome] = field(default_factory=dict)
    not_searched: str = ""

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
    *, layout: Layout, words: tuple[str, ...], objective: Objective, most_gpus: int, end: End, guess: int = 0,
    whole: bool = False,
) -> LayoutSearch:  # fmt: skip
    """Search for the layout's least size, up to ``most_gpus`` GPUs, whose run meets the objective.

    ``guess``: the number of GPUs that the search tries first; 0 for the smallest size. ``whole``: no run
    stops early.
    """
    steps = LayoutSteps(layout, most_gpus, guess)
    while (gpus := steps.next_gpus) is not None:
        outcome = probe((*words, *layout.words_of(gpus)), end, None if whole else objective)
        steps.take(outcome, objective.met_by(outcome.numbers))
    return steps.search(end)


class LayoutSteps:
    """The search of one layout, a run at a time: ``next_gpus`` is the size to run, None if it is finished."""

    def __init__(self, layout: Layout, most_gpus: int, guess: int) -> None:
        self.layout, self._sizes = layout, layout.sizes(most_gpus)
        first = min(max((guess - layout.least) // layout.step, 0), max(len(self._sizes) - 1, 0))
        self._places = places(len(self._sizes), first)
        self._place, self._least, self._missed = next(self._places, None), None, -1
        self.tried: dict[int, PointOutcome] = {}
        self.met_gpus: int | None = None

    @property
    def next_gpus(self) -> int | None:
        """The size to run next."""
        return None if self._place is None else self._sizes[self._place]

    @property
    def fewest_gpus(self) -> int:
        """The fewest GPUs that the answer can have, if more GPUs serve no worse."""
        return self.layout.least + (self._missed + 1) * self.layout.step

    def take(self, outcome: PointOutcome, meets: bool) -> None:
        """Take the outcome of the run with ``next_gpus``, and choose the next size."""
        place, gpus = self._place, self.next_gpus
        assert place is not None and gpus is not None
        self.tried[gpus] = outcome
        if meets:
            self.met_gpus = gpus if self.met_gpus is None else min(gpus, self.met_gpus)
        else:
            self._missed = max(self._missed, place)
        try:
            self._place = self._places.send(meets)
        except StopIteration as found:
            self._place, self._least = None, found.value

    def search(self, end: End, not_searched: str = "") -> LayoutSearch:
        """Return the result so far."""
        gpus = None if self._least is None else self._sizes[self._least]
        return LayoutSearch(self.layout, end, gpus, self.tried, not_searched)


def first_true(meets: Callable[[int], bool], count: int, start: int = 0) -> int | None:
    """Return the least index below ``count`` for which ``meets`` returns True, None if there is none.

    ``meets`` is assumed to return False below that index and True from it on. ``start``: the index that the
    search tries first.
    """
    asked = places(count, start)
    try:
        place = next(asked)
        while True:
            place = asked.send(meets(place))
    except StopIteration as found:
        least: int | None = found.value
        return least


def places(count: int, start: int) -> Generator[int, bool, int | None]:
    """Yield the indices at which ``first_true`` asks, receive the answers, and return what it found."""
    if count == 0:
        return None
    low, high = yield from bracket(count, start)
    if high == count:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield middle) else (middle, high)
    return high


def bracket(count: int, start: int) -> Generator[int, bool, tuple[int, int]]:
    """Return two indices between which the answer lies, found from ``start`` by steps that double.

    The first does not meet (-1: the least index meets already), the second meets (``count``: the last index
    does not meet).
    """
    step = 1
    if (yield start):
        high = start
        while high > 0:
            lower = max(high - step, 0)
            if not (yield lower):
                return lower, high
            high, step = lower, step * 2
        return -1, 0
    low = start
    while low < count - 1:
        higher = min(low + step, count - 1)
        if (yield higher):
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
