"""How far a simulated run is from repeats of a real one, relative to how far these are from each other.

Robust to one disturbed run of five: distances are medians over runs and pairs of runs, and a run whose mean
is far from those of the others is named and left out. The numbers with it are kept beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.bootstrap import arrival_blocks, interval
from servetwin.compare.distance import distance, resampled_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A ratio of at most 1: the simulated run is nearer to real ones than they are to each other.
MOST_RATIO: Final = 1.0
# Relative difference between the means of the slowest and the fastest real run. Above it no verdict is
# possible, because a result between the two means fits both runs. The distance cannot be used for this limit:
# if all requests take the same time, a difference of 1 % makes the distance 1.
MOST_APART: Final = 0.2
# A run this far from the median of the others was disturbed: half of the range that all may lie in.
FAR: Final = MOST_APART / 2
# With fewer runs, leaving one out leaves no majority that repeats itself.
LEAST_TO_LEAVE_OUT: Final = 5
AGREES, DIFFERS = "agrees", "differs"
_SEED: Final = 0  # fixed, so that the same runs always give the same interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Of one metric. ``apart``: the share by which the slowest real run's mean is above the fastest.

    ``to_real``: the distance from the simulated run to a real one, ``to_repeat`` from one real run to
    another; medians. A distance below that of one request counts as that of one. ``low`` to ``high``: the
    95 % interval of the ratio. ``unusual``: the same ratio of an unusual real run to the others.
    """

    requests: int
    to_real: float
    to_repeat: float
    low: float
    high: float
    unusual: float
    apart: float

    @property
    def ratio(self) -> float:
        """D_sim / D_repeat."""
        return self.to_real / max(self.to_repeat, 1 / self.requests)

    @property
    def verdict(self) -> str:
        """Whether the simulated run can be told from a rerun.

        It can if the whole interval is above 1, and above what an unusual real run has. The interval alone
        would not do: of so few runs each is now and then the one that is farthest from the others.
        """
        return AGREES if self.low <= max(MOST_RATIO, self.unusual) else DIFFERS

    @property
    def decides(self) -> bool:
        """Whether the real runs are near enough to each other for a verdict."""
        return self.apart <= MOST_APART


def disturbed_run(means: Mapping[str, Sequence[float]]) -> int | None:
    """Return which real run was disturbed, by the means of each metric; None if none was, or it is unknown.

    It is the run that is farthest from the median of the others in any metric, and never more than one: if
    two were, nobody could say which runs are right.
    """
    farthest, which = FAR, None
    for values in means.values():
        for number, mean in enumerate(values if len(values) >= LEAST_TO_LEAVE_OUT else ()):
            others = float(np.median([*values[:number], *values[number + 1 :]]))
            far = abs(mean / others - 1) if others else 0.0
            if far > farthest:
                farthest, which = far, number
    return which


def distances(simulated: Floats, reals: Sequence[Floats], arrival_s: Floats) -> Distances:
    """Compare one metric of the same requests in all runs; ``arrival_s`` need not be in order."""
    order = np.argsort(arrival_s, kind="stable")
    simulated, reals = simulated[order], [real[order] for real in reals]
    pairs = list(combinations(range(len(reals)), 2))
    between = {pair: distance(reals[pair[0]], reals[pair[1]]) for pair in pairs}
    to_repeat, least = float(np.median(list(between.values()))), 1 / len(simulated)
    means = [float(real.mean()) for real in reals]
    low, high = _ratio_interval(simulated, reals, pairs, arrival_s[order])
    return Distances(
        requests=len(simulated),
        to_real=float(np.median([distance(simulated, real) for real in reals])),
        to_repeat=to_repeat,
        low=low,
        high=high,
        unusual=_unusual(between, len(reals)) / max(to_repeat, least),
        apart=max(means) / min(means) - 1 if min(means) else 0.0,
    )


def _unusual(between: Mapping[tuple[int, int], float], count: int) -> float:
    """Return how far the farthest real run is from the others; of five the second: one may be disturbed."""
    from_others = sorted(
        float(np.median([apart for pair, apart in between.items() if run in pair])) for run in range(count)
    )
    return from_others[-2 if count >= LEAST_TO_LEAVE_OUT else -1]


def _ratio_interval(
    simulated: Floats, reals: Sequence[Floats], pairs: Sequence[tuple[int, int]], arrival_s: Floats
) -> tuple[float, float]:
    """Resample blocks of arrival time, and half of the real runs each time.

    Requests alone would not do: the speed of a machine differs from run to run. Subsamples of half of the
    runs spread as much as new runs would (the delete-d jackknife with d = n / 2: Shao and Wu 1989).
    """
    times = arrival_blocks(arrival_s)
    times = times[times.any(axis=1)]
    to_real = np.array([resampled_distances(simulated, real, times) for real in reals])
    to_repeat = np.array([resampled_distances(reals[a], reals[b], times) for a, b in pairs])
    random, count = np.random.default_rng(_SEED), len(reals)
    drawn = np.empty(len(times))
    for row in range(len(times)):
        runs = set(random.permutation(count)[: max(2, (count + 1) // 2)].tolist())
        among = [place for place, pair in enumerate(pairs) if runs.issuperset(pair)]
        repeat = float(np.median(to_repeat[among, row]))
        drawn[row] = np.median(to_real[list(runs), row]) / max(repeat, 1 / len(simulated))
    return interval(drawn)
