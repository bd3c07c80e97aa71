"""Reader of one day of the Azure Functions trace of 2019 (invocations per minute; plain or gzipped).

Source of the format: github.com/Azure/AzurePublicDataset, AzureFunctionsDataset2019.md: one row per function
and trigger, one column per minute of the day. Shahrad et al., USENIX ATC 2020.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.columns import Names
from traces.errors import TraceError
from traces.importers.azure_functions import short_names
from traces.importers.azure_functions_2019_rows import MINUTES, Day, read_day
from traces.importers.requests import NO_LENGTHS
from traces.reading import Origin
from traces.streams import stream
from traces.workload import MAX_ROWS, NS_PER_S, Workload

SPREAD: Final = "invocations spread at random within their minute"
NEVER: Final = "{} functions never invoked left out"
"""A label: functions are no requests, so they are not among those dropped."""
MINUTE_NS: Final = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class _Counts:
    """Invocations of the functions taken, by minute: ``ends[m]`` arrive up to the end of minute m.

    Cell c says that function ``code[c]`` was invoked ``count[c]`` times in minute m, where
    ``starts[m] <= c < starts[m + 1]``.
    """

    code: NDArray[np.int32]
    count: NDArray[np.int32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def total(self) -> int:
        """All invocations of the day."""
        return int(self.ends[-1])


def read_azure_functions_2019(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    functions: int | None = None,
) -> Workload:
    """The invocations of one day's file, counted from midnight, each at a random instant of its minute.

    A function (whatever triggers it) is a model, named by the first 8 digits of its app and its own, or more
    where two would be one. functions: only the so many most invoked ones (of equals those that come first).
    limit: only the first arrivals, which are the same without it. seed: of the instants. How
    many functions were never invoked is a label; ``rows_read`` counts the file's rows, not invocations.
    The trace has no lengths, so that every request gets one token on each side, which a label says.
    Raises TraceError naming file, line, column and remedy for whatever is no such file, and when there are
    more invocations than a workload holds.
    """
    for key, value in (("limit", limit), ("functions", functions)):
        if value is not None:
            whole_number(f"trace.{key}", value, 1, MAX_ROWS)
    generator = stream(seed, "azure_functions_2019/instants")
    file = Path(path)
    origin = Origin.of(file)
    day = read_day(file)
    taken, labels = _most_invoked(day, functions)
    counts = _counts(day, taken)
    rows = counts.total if limit is None else min(limit, counts.total)
    if rows < counts.total:
        labels += (f"first {rows} of {counts.total} requests",)
    arrival_ns, code = _spread(counts, _minutes_needed(file, day, counts, rows), generator)
    words = short_names(day.functions)
    ones = np.ones(rows, dtype=np.int64)
    never = int(np.count_nonzero(day.row_total == 0))
    return Workload(
        arrival_ns=arrival_ns[:rows],
        prompt_tokens=ones,
        output_tokens=ones,
        model=Names(code[:rows], tuple(words[function] for function in taken.tolist())),
        name=name or origin.name,
        source=origin.source,
        labels=(*labels, SPREAD, NO_LENGTHS, *((NEVER.format(never),) if never else ())),
        rows_read=len(day.row_total),
    )


def _most_invoked(day: Day, functions: int | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The invoked functions, or the most invoked of them, in order of the file; a label if not all."""
    total = day.function_total()
    invoked = np.flatnonzero(total)
    if functions is None or functions >= len(invoked):
        return invoked, ()
    most = invoked[np.argsort(-total[invoked], kind="stable")[:functions]]
    return np.sort(most), (f"the {functions} most invoked of {len(invoked)} functions",)


def _counts(day: Day, taken: NDArray[np.int64]) -> _Counts:
    """The day's cells of the functions ``taken``, minute by minute; codes are places in ``taken``."""
    code_of = np.full(len(day.functions), -1, dtype=np.int32)
    code_of[taken] = np.arange(len(taken))
    code = code_of[day.row_function][day.cell_row]
    cells = np.flatnonzero(code >= 0)
    cells = cells[np.argsort(day.cell_minute[cells], kind="stable")]
    starts = np.searchsorted(day.cell_minute[cells], np.arange(MINUTES + 1))
    count = day.cell_count[cells]
    before = np.concatenate(([0], np.cumsum(count, dtype=np.int64)))
    return _Counts(code[cells], count, starts, before[starts[1:]])


def _minutes_needed(file: Path, day: Day, counts: _Counts, rows: int) -> int:
    """How many minutes give ``rows`` arrivals; TraceError when these minutes hold too many to be drawn."""
    minutes = int(np.searchsorted(counts.ends, rows)) + 1
    if int(counts.ends[minutes - 1]) <= MAX_ROWS:
        return minutes
    most_first = np.sort(day.function_total())[::-1]
    fit = int(np.searchsorted(np.cumsum(most_first), MAX_ROWS, side="right"))
    remedy = f"trace.functions={fit} (the most invoked ones) or less, or a smaller trace.limit"
    if fit == 0:
        remedy = "trace.limit with the number of first arrivals you need"
    raise TraceError(
        f"{file} has {counts.total} invocations, and at most {MAX_ROWS} can be read at once: write {remedy}"
    )


def _spread(
    counts: _Counts, minutes: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(arrival_ns, code) of the first ``minutes``, in order of arrival.

    The instants are drawn minute after minute, so that fewer minutes give the same first arrivals.
    """
    arrival_ns = np.empty(int(counts.ends[minutes - 1]), dtype=np.int64)
    code = np.empty(len(arrival_ns), dtype=np.int32)
    start = 0
    for minute in range(minutes):
        cells = slice(int(counts.starts[minute]), int(counts.starts[minute + 1]))
        end = int(counts.ends[minute])
        instant_ns = generator.integers(0, MINUTE_NS, size=end - start)
        order = np.argsort(instant_ns, kind="stable")
        arrival_ns[start:end] = instant_ns[order] + minute * MINUTE_NS
        code[start:end] = np.repeat(counts.code[cells], counts.count[cells])[order]
        start = end
    return arrival_ns, code
