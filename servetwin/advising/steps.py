"""Numbers of instances over time: recorded, advised and simulated, as steps that can be compared."""

from __future__ import annotations

import numpy as np

from servetwin.advising.advice import Advice
from servetwin.advising.record import Record
from servetwin.advising.simulated import Simulated
from servetwin.advising.time_series import Floats

Steps = tuple[Floats, Floats]
"""Times in s since the first instant, ascending, and the number from each of them on."""


def recorded_steps(record: Record) -> Steps:
    """Return the instances that took requests."""
    return record.since_s, record.serving


def advised_steps(advice: Advice) -> Steps:
    """Return the wanted number from each decision on."""
    times = [decision.at_s for decision in advice.decisions]
    return np.array(times), np.array([float(decision.wanted) for decision in advice.decisions])


def simulated_steps(run: Simulated, end_s: float) -> Steps:
    """Return the instances that took requests in the simulated run, as long as the record is."""
    times, counts = np.array(run.serving, dtype=np.float64).reshape(-1, 2).T
    return times[times < end_s], counts[times < end_s]


def at(steps: Steps, at_s: Floats) -> Floats:
    """Return the number at each time; NaN before the first step."""
    times, counts = steps
    if not len(times):
        return np.full(len(at_s), np.nan)
    place = np.searchsorted(times, at_s + 1e-6, side="right") - 1
    return np.where(place >= 0, counts[np.maximum(place, 0)], np.nan)


def mean(steps: Steps, end_s: float) -> float | None:
    """Return the mean from the first step to ``end_s``; None without steps."""
    times, counts = steps
    if not len(times) or times[0] >= end_s:
        return None
    lasted = np.diff(np.append(times, end_s))
    known = np.isfinite(counts)
    return float((counts[known] * lasted[known]).sum() / lasted[known].sum())


def drawn(steps: Steps, end_s: float) -> Steps:
    """Return the corners of the staircase, for a line."""
    times, counts = steps
    if not len(times):
        return steps
    changed = np.flatnonzero(np.append(True, np.diff(counts) != 0))
    times, counts = times[changed], counts[changed]
    return np.append(np.repeat(times, 2)[1:], end_s), np.repeat(counts, 2)
