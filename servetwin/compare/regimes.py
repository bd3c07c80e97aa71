"""The load of the simulated system when a request arrived: light, knee or overload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.measured import NS_PER_S
from servetwin.results.series_sink import NO_ENGINE
from servetwin.results.series_table import ENGINE, TIME, WAITING_GAUGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from servetwin.compare.own_result import Columns

REGIMES: Final = ("light", "knee", "overload")
# ServeTwin's own definition: how often requests wait, within this time around an arrival. docs/COMPARE.md
# has the runs from which the two bounds were read.
WINDOW_S: Final = 30.0
KNEE_FROM: Final = 0.4
OVERLOAD_FROM: Final = 0.8
DEFINITION: Final = (
    f"by how often requests wait at an engine of the simulated run, or in a queue before all engines, over "
    f"{WINDOW_S:g} s around an arrival: light below {KNEE_FROM:.0%} of the time, knee below "
    f"{OVERLOAD_FROM:.0%}, overload from there on"
)


def regimes_of(series: Columns, arrival_ns: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return an index into ``REGIMES`` for every arrival; engines that never have a queue are ignored."""
    engine_ids = np.unique(series[ENGINE])
    engines = len(engine_ids)
    times_s = series[TIME].reshape(-1, engines)[:, 0].astype(np.float64)
    waits = series[WAITING_GAUGE].reshape(-1, engines).astype(bool)
    common = waits[:, engine_ids == NO_ENGINE].any(axis=1)  # if requests wait there, every engine is full
    waits = waits[:, waits.any(axis=0) & (engine_ids != NO_ENGINE)]
    period_s = float(times_s[1] - times_s[0]) if len(times_s) > 1 else WINDOW_S
    waiting = waits.mean(axis=1) if waits.size else np.zeros(len(times_s))
    share = _around(np.maximum(waiting, common), round(WINDOW_S / 2 / period_s))
    regime = np.searchsorted([KNEE_FROM, OVERLOAD_FROM], share, side="right")
    at = np.searchsorted(times_s, arrival_ns.astype(np.float64) / NS_PER_S, side="right") - 1
    found: NDArray[np.int64] = regime[np.clip(at, 0, len(regime) - 1)]
    return found


def _around(values: NDArray[np.float64], half: int) -> NDArray[np.float64]:
    """Return the mean of each value with up to ``half`` values before and after it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, after = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    means: NDArray[np.float64] = (sums[after] - sums[first]) / (after - first)
    return means
