"""A trace played several times, one after the other."""

from typing import Final

import numpy as np

from traces.checks import whole_number
from traces.errors import TraceError
from traces.scaling import apart, unshared
from traces.workload import COLUMNS, LONGEST_NS, MAX_ROWS, Workload, taken

OWN: Final = "own"
SAME: Final = "same"
CONTENTS: Final = (OWN, SAME)


def repeated(workload: Workload, times: int, contents: str) -> Workload:
    """The trace ``times`` times, each repetition one mean gap after the last arrival of the one before.

    contents: what its prompts say. ``own``: each repetition shares prefixes within itself alone, as often as
    the trace does; ``same``: every prompt again as it was, so that all but the first repetition repeat.
    With ``own``, conversations are other ones in each. Raises TraceError, also for a trace of one instant.
    """
    count = whole_number("trace.repeat", times, 1, MAX_ROWS)
    if contents not in CONTENTS:
        raise TraceError(f"trace.repeat_contents={contents} is unknown: write {' or '.join(CONTENTS)}")
    if count == 1:
        return workload
    rows = len(workload)
    if count * rows > MAX_ROWS:
        raise TraceError(f"trace.repeat={count} makes more than {MAX_ROWS} requests: write a smaller one")
    period_ns = _period_ns(workload)
    if period_ns == 0:
        raise TraceError(
            f"trace.repeat={count} has no time between repetitions, for all requests of {workload.name} "
            "arrive at one time: leave it out"
        )
    if period_ns * count > LONGEST_NS:
        raise TraceError(
            f"trace.repeat={count} makes {workload.name} last beyond 31 years: write a smaller one"
        )
    which = np.repeat(np.arange(count), rows)
    again = np.tile(np.arange(rows), count)
    columns = {column: taken(getattr(workload, column), again) for column in COLUMNS}
    columns["arrival_ns"] = columns["arrival_ns"] + which * period_ns
    if contents == OWN:
        columns |= {"prefix": unshared(columns["prefix"], which), "session": apart(columns["session"], which)}
    return workload.labelled(_label(count, contents), **columns)


def _label(count: int, contents: str) -> str:
    return f"repeated {count} times, " + ("each with contents of its own" if contents == OWN else "as it was")


def _period_ns(workload: Workload) -> int:
    """From one repetition to the next: what the trace lasts and one mean gap more."""
    lasts_ns = int(workload.arrival_ns[-1] - workload.arrival_ns[0])
    return lasts_ns + (round(lasts_ns / (len(workload) - 1)) if len(workload) > 1 else 0)
