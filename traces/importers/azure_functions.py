"""Readers of the Azure Functions traces: invocations of 2021 one by one, and of 2019 per minute.

Source of the formats: github.com/Azure/AzurePublicDataset. AzureFunctionsInvocationTrace2021.md: app, func,
end_timestamp, duration; both times in seconds, ``func`` unique within its ``app`` only, rows not sorted by
arrival (Zhang et al., SOSP 2021). AzureFunctionsDataset2019.md: one day, plain or gzipped; one row per
function and trigger, one column per minute (Shahrad et al., USENIX ATC 2020).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.columns import Names
from traces.csv.line import Place, absent, shown
from traces.csv.moment import moment, span
from traces.csv.table import Field, Table, first_cells, read_table
from traces.csv.word import Word, compacted
from traces.errors import TraceError
from traces.importers.requests import NO_LENGTHS, Sieve, check_limit, first_rows, workload_of
from traces.reading import Origin, line_blocks
from traces.streams import stream
from traces.times import Clock, Ints, read_in_unit
from traces.workload import MAX_ROWS, NS_PER_S, Workload

_SHORT_DIGITS: Final = 8


def short_names(functions: list[tuple[str, str]]) -> tuple[str, ...]:
    """APP/FUNC with the first 8 digits of each; those that would then be equal get twice as many, and so on.

    functions: different pairs. Raises TraceError when even whole names are equal, which only a / in one does.
    """
    names = ["/".join(part[:_SHORT_DIGITS] for part in pair) for pair in functions]
    digits = _SHORT_DIGITS
    longest = max((len(part) for pair in functions for part in pair), default=0)
    while len(set(names)) < len(names):
        if digits >= longest:
            raise TraceError("two functions would get the same name: write app and func without /")
        digits *= 2
        rows_of: dict[str, int] = {}
        for name in names:
            rows_of[name] = rows_of.get(name, 0) + 1
        names = [
            name if rows_of[name] == 1 else "/".join(part[:digits] for part in pair)
            for name, pair in zip(names, functions, strict=True)
        ]
    return tuple(names)


_END: Final = "end_timestamp"
_NAMES: Final = (Field("app", Word()), Field("func", Word()))


def read_azure_functions_2021(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The invocations of one file in order of arrival (end less duration), counted from the first.

    A function is a model, named by the first 8 digits of its app and its own, or more where two functions
    would be one. time_unit: of both times, see ``traces.times``; None: durations are in s, as published.
    ``limit`` takes the first arrivals; the whole file is still judged. The trace has no
    lengths, so that every request gets one token on each side, which a label says. Raises TraceError naming
    file, line, column and remedy for whatever is not an invocation.
    """
    check_limit(limit)
    file = Path(path)
    first = first_cells(file).get(_END) if time_unit is None else None
    (table, by_arrival), times = read_in_unit(
        Clock("s"),
        time_unit,
        first,
        lambda unit: _read(file, unit, unit if time_unit else "s"),
        from_first=True,
    )
    duration_ns = table.columns["duration"]
    rows, labels = first_rows(table.rows, limit)
    by_arrival = by_arrival[:rows]
    try:
        functions = _functions(table.columns["app"], table.columns["func"])
    except TraceError as error:
        raise TraceError(f"{table.origin.path}: {error}") from error
    ones = np.ones(rows, dtype=np.int64)
    columns = {
        "arrival_ns": times.arrival_ns[:rows],
        "prompt_tokens": ones,
        "output_tokens": ones,
        "model": functions.taking(by_arrival),
        "source_duration_ns": duration_ns[by_arrival],
    }
    labels += (*times.labels, NO_LENGTHS)
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=labels)


def _read(file: Path, unit: str, duration_unit: str) -> tuple[tuple[Table, Ints], Ints]:
    """The table with the order in which its rows arrive, and their times in that order."""
    table = read_table(file, (*_NAMES, Field(_END, moment(unit)), Field("duration", span(duration_unit))))
    start_ns = table.columns[_END] - table.columns["duration"]
    by_arrival = np.argsort(start_ns, kind="stable")
    return (table, by_arrival), start_ns[by_arrival]


def _functions(app: Names, func: Names) -> Names:
    """One short name per pair of app and function."""
    pair = app.codes.astype(np.int64) * len(func.words) + func.codes
    pairs, code = np.unique(pair, return_inverse=True)
    apps, funcs = np.divmod(pairs, len(func.words))
    whole = [(app.words[a], func.words[f]) for a, f in zip(apps.tolist(), funcs.tolist())]
    return compacted(code.astype(np.int32), short_names(whole))


# The rows of an Azure Functions 2019 file, judged and kept as their counts above zero.

MINUTES: Final = 1440
MAX_PER_MINUTE: Final = MAX_ROWS
"""Most invocations in one cell: more could never be handed on, and is a damaged cell."""
IDS: Final = ("HashOwner", "HashApp", "HashFunction")
COLUMNS: Final = (*IDS, "Trigger", *(str(minute) for minute in range(1, MINUTES + 1)))
_HEADER_SHOWN: Final = "HashOwner,HashApp,HashFunction,Trigger,1,2,...,1440"
# The publisher's ids are HMAC-SHA256 in hex; shorter ones are as good.
_ID: Final = rb"[0-9a-fA-F]{1,128}"
_TRIGGER: Final = rb"[A-Za-z][A-Za-z0-9_ -]{0,63}"
_HEAD: Final = re.compile(rb"%s,(%s),(%s),(%s)," % (_ID, _ID, _ID, _TRIGGER))

_Key = tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One file. functions: (app, function) in order of first appearance. A row is one under one trigger.

    row_function: int32, each row's function. row_total: int64, each row's invocations. Cells are the counts
    above zero: cell_row int32, cell_minute int16 (0 to 1439), cell_count int32; 10 bytes each.
    """

    functions: list[tuple[str, str]]
    row_function: NDArray[np.int32]
    row_total: NDArray[np.int64]
    cell_row: NDArray[np.int32]
    cell_minute: NDArray[np.int16]
    cell_count: NDArray[np.int32]

    def function_total(self) -> NDArray[np.int64]:
        """Invocations of each function, all triggers together."""
        total = np.zeros(len(self.functions), dtype=np.int64)
        np.add.at(total, self.row_function, self.row_total)
        return total


@dataclass(slots=True)
class _Rows:
    """What is known of the rows read so far."""

    line_of: dict[_Key, int] = field(default_factory=dict)
    function_of: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    row_function: list[int] = field(default_factory=list)

    def add(self, key: _Key, place: Place) -> TraceError | None:
        """Note one row, or say that the same function and trigger came before."""
        before = self.line_of.setdefault(key, place.line)
        if before != place.line:
            problem = f"function and trigger are those of line {before}"
            return place.error(problem, "keep one of the two", IDS[-1])
        self.row_function.append(self.function_of.setdefault(key[:2], len(self.function_of)))
        return None


def read_day(file: Path) -> Day:
    """All rows of the file. Raises TraceError naming file, line, column and remedy at the first wrong one."""
    rows = _Rows()
    totals: list[NDArray[np.int64]] = []
    cells: list[tuple[NDArray[np.int32], NDArray[np.int16], NDArray[np.int32]]] = []
    for first, lines in _blocks(file):
        above = len(rows.row_function)
        counts = _matrix(lines, first, rows)
        row, minute = np.nonzero(counts)
        totals.append(counts.sum(axis=1))
        cells.append(
            (
                (row + above).astype(np.int32),
                minute.astype(np.int16),
                counts[row, minute].astype(np.int32),
            )
        )
    if not totals:
        raise TraceError(f"{file} has a header and no functions: add one line per function")
    row_total = np.concatenate(totals)
    if not row_total.any():
        raise TraceError(f"{file}: no function is ever invoked: name a file with counts above 0")
    cell_row, cell_minute, cell_count = (np.concatenate(column) for column in zip(*cells, strict=True))
    return Day(
        functions=[(app.decode(), function.decode()) for app, function in rows.function_of],
        row_function=np.array(rows.row_function, dtype=np.int32),
        row_total=row_total,
        cell_row=cell_row,
        cell_minute=cell_minute,
        cell_count=cell_count,
    )


def _blocks(file: Path) -> Iterator[tuple[Place, list[bytes]]]:
    """(place of the first line, lines without their ends), the header and empty last lines left out."""
    number, blank = 1, 0
    for block in line_blocks(file):
        lines = [line.removesuffix(b"\r") for line in block.removesuffix(b"\n").split(b"\n")]
        if number == 1:
            _check_header(lines.pop(0), Place(file, 1))
            number = 2
        filled = next((i for i in range(len(lines), 0, -1) if lines[i - 1]), 0)
        if filled and blank:
            raise Place(file, blank).error("the line is empty", "delete it")
        if filled:
            yield Place(file, number), lines[:filled]
        if filled < len(lines) and not blank:
            blank = number + filled
        number += len(lines)
    if number == 1:
        raise TraceError(f"{file} is empty: write the header {_HEADER_SHOWN} and one line per function")


def _check_header(text: bytes, place: Place) -> None:
    columns = text.decode("utf-8", "backslashreplace").split(",")
    for at, column in enumerate(COLUMNS):
        if at >= len(columns):
            raise place.error("the column is missing", f"write the header {_HEADER_SHOWN}", column)
        if columns[at] != column:
            raise place.error(
                f"found {shown(columns[at])} instead", f"write the header {_HEADER_SHOWN}", column
            )
    if len(columns) > len(COLUMNS):
        problem = f"column {shown(columns[len(COLUMNS)])} is unknown"
        raise place.error(problem, f"write the header {_HEADER_SHOWN}")


def _matrix(lines: list[bytes], first: Place, rows: _Rows) -> NDArray[np.int64]:
    """The counts of consecutive lines, one row each; TraceError at the first line that is wrong."""
    texts: list[bytes] = []
    wrong: TraceError | None = None
    for at, line in enumerate(lines):
        place = Place(first.path, first.line + at)
        head = _HEAD.match(line)
        if head is None or not _is_counts(line[head.end() :]):
            wrong = _explained(line, place)
        else:
            wrong = rows.add((head[1], head[2], head[3]), place)
        if wrong is not None or head is None:
            break
        texts.append(line[head.end() :])
    counts = np.zeros(0, dtype=np.int64)
    if texts:  # what does not fit into 64 bits comes out as the largest number that does
        counts = np.fromstring(b",".join(texts), dtype=np.int64, sep=",")
    table = counts.reshape(len(texts), MINUTES)
    large = np.flatnonzero((table > MAX_PER_MINUTE).any(axis=1))
    if len(large):
        at = int(large[0])
        wrong = _explained(lines[at], Place(first.path, first.line + at))
    if wrong is not None:
        raise wrong
    return table


def _is_counts(text: bytes) -> bool:
    """Whether it is 1440 runs of digits with one comma between any two."""
    return (
        text.count(b",") == MINUTES - 1
        and not text.translate(None, b"0123456789,")
        and b",," not in text
        and not text.startswith(b",")
        and not text.endswith(b",")
    )


def _explained(line: bytes, place: Place) -> TraceError:
    """What is wrong with a line that is not in the one form there is."""
    if not line.strip():
        return place.error("the line is empty", "delete it")
    fields = line.decode("utf-8", "backslashreplace").split(",")
    if len(fields) != len(COLUMNS):
        size = "too few" if len(fields) < len(COLUMNS) else "too many"
        return place.error(f"{len(fields)} fields are {size}", f"write {len(COLUMNS)}: {_HEADER_SHOWN}")
    for column, text in zip(IDS, fields, strict=False):
        if not re.fullmatch(_ID.decode(), text):
            return place.error(f"{shown(text)} is not a hash", "write 1 to 128 hexadecimal digits", column)
    if not re.fullmatch(_TRIGGER.decode(), fields[len(IDS)]):
        problem = f"{shown(fields[len(IDS)])} is not a trigger"
        return place.error(problem, "write a word such as http", COLUMNS[len(IDS)])
    for column, text in zip(COLUMNS[len(IDS) + 1 :], fields[len(IDS) + 1 :], strict=True):
        problem = _problem(text)
        if problem:
            return place.error(problem, "write a whole number such as 0", column)
    raise AssertionError(f"{place} is in the usual form")


def _problem(text: str) -> str:
    """What is wrong with a count, or nothing."""
    if absent(text.strip()):
        return f"the value is missing ({shown(text)})"
    if re.fullmatch(r"[0-9]+", text):
        digits = text.lstrip("0") or "0"
        if len(digits) > len(str(MAX_PER_MINUTE)) or int(digits) > MAX_PER_MINUTE:
            return f"{shown(text)} invocations in a minute are more than {MAX_PER_MINUTE}"
        return ""
    if re.fullmatch(r"-[0-9.]+", text):
        return f"{shown(text)} is negative"
    if re.fullmatch(r"[0-9]*\.[0-9]*", text):
        return f"{shown(text)} has a fraction"
    return f"{shown(text)} is not a whole number"


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
