"""A stretch of a trace: by time, or by a rule that finds one. Arrivals keep their distance from its start."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, positive_number, short_number
from traces.errors import TraceError
from traces.workload import LONGEST_NS, NS_PER_S, Workload

STEP_S: Final = 5
"""Windows found by a rule start at a multiple of this many seconds."""
ONSET_LEAD_S: Final = 5
"""An onset is shown this long after the window's start, as in the BlitzScale figures."""
ONSET_S: Final = 10
"""A rise is the arrivals of the 10 s after an instant less those of the 10 s before it."""


@dataclass(frozen=True, slots=True)
class Window:
    """``length_s`` seconds from ``start_s``, both counted from the first arrival."""

    start_s: float
    length_s: float

    def of(self, workload: Workload) -> Workload:
        """The requests that arrive in it, times counted from its start; TraceError when there is none."""
        since_ns = workload.arrival_ns - workload.arrival_ns[0]
        start_ns = round(self.start_s * NS_PER_S)
        stop_ns = start_ns + round(self.length_s * NS_PER_S)
        first, last = np.searchsorted(since_ns, (start_ns, stop_ns))
        if first == last:
            raise TraceError(
                f"no request of {workload.name} arrives in the {short_number(self.length_s)} s from"
                f" {short_number(self.start_s)} s on: it lasts {workload.duration_s:.0f} s, so write another"
                " trace.window_start_s or trace.window_s"
            )
        stop_s = self.start_s + self.length_s
        label = f"window from {short_number(self.start_s)} to {short_number(stop_s)} s"
        part = workload.taking(slice(int(first), int(last)), label)
        return replace(part, arrival_ns=since_ns[first:last] - start_ns)


def time_window(start_s: float, length_s: float) -> Window:
    """The window of that start (0 or later) and length (above 0); TraceError otherwise."""
    start = number_within("trace.window_start_s", start_s, 0, LONGEST_NS / NS_PER_S)
    return Window(start, positive_number("trace.window_s", length_s))


def from_start(start_s: float, workload: Workload) -> Window:
    """The window from that start to the last request of the workload; TraceError if it is later."""
    start = number_within("trace.window_start_s", start_s, 0, LONGEST_NS / NS_PER_S)
    since_ns = int(workload.arrival_ns[-1] - workload.arrival_ns[0])
    if start * NS_PER_S > since_ns:
        raise TraceError(
            f"trace.window_start_s={short_number(start)} is later than the last request of {workload.name},"
            f" at {since_ns / NS_PER_S:.0f} s: write a smaller one"
        )
    return Window(start, (since_ns + 1) / NS_PER_S - start)


def busiest(workload: Workload, length_s: float) -> Window:
    """The window of that length with the most prompt tokens (the earliest of equals)."""
    starts, first, last = _rows(workload, length_s)
    tokens = np.concatenate(([0], np.cumsum(workload.prompt_tokens)))
    return Window(float(starts[int(np.argmax(tokens[last] - tokens[first]))]), length_s)


def onset(workload: Workload, length_s: float) -> Window:
    """The window with the steepest rise of the rate ``ONSET_LEAD_S`` after its start."""
    starts, _, _ = _rows(workload, length_s)
    since_ns = workload.arrival_ns - workload.arrival_ns[0]
    instants = (starts + ONSET_LEAD_S + shift for shift in (-ONSET_S, 0, ONSET_S))
    before, at, after = (np.searchsorted(since_ns, instant * NS_PER_S) for instant in instants)
    return Window(float(starts[int(np.argmax((after - at) - (at - before)))]), length_s)


RULES: Final[dict[str, Callable[[Workload, float], Window]]] = {"busiest": busiest, "onset": onset}


def _rows(
    workload: Workload, length_s: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(start in s, first row, row after the last) of every window of that length that fits the trace."""
    length = positive_number("trace.window_s", length_s)
    room_s = workload.duration_s - length
    if room_s < 0:
        raise _too_long(workload, length)
    starts = np.arange(0, int(room_s) + 1, STEP_S)
    since_ns = workload.arrival_ns - workload.arrival_ns[0]
    first = np.searchsorted(since_ns, starts * NS_PER_S)
    return starts, first, np.searchsorted(since_ns, starts * NS_PER_S + round(length * NS_PER_S))


def _too_long(workload: Workload, length_s: float) -> TraceError:
    return TraceError(
        f"trace.window_s={short_number(length_s)} is longer than {workload.name}, which lasts"
        f" {workload.duration_s:.0f} s: write a smaller one"
    )
