"""The workload schema as a CSV file, to be read and written by people, spreadsheets and other tools.

Columns, in any order: arrival_ns (or arrival_s, arrival_ms, arrival_us, decimals; or arrival, whose values
tell the unit), prompt_tokens, output_tokens, each also under another name (``traces.column_names``), and any
of max_new_tokens, model, priority, session (empty: none), images, source_duration_ns (empty: unknown)
and prefix_N: ids of the prompt's blocks of N tokens, with single spaces between (empty: none).
"""

import gzip
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from traces import reading
from traces.column_names import ARRIVAL, ARRIVALS, OUTPUT, PREFIX, PROMPT, Columns, columns_of, needs
from traces.columns import ABSENT, Names, PrefixBlocks
from traces.csv.column import Kind
from traces.csv.ids import Ids
from traces.csv.line import Place
from traces.csv.moment import moment
from traces.csv.table import Field, Table, read_header, read_table
from traces.csv.whole import Whole
from traces.csv.word import MAX_WORD_BYTES, Word
from traces.errors import TraceError
from traces.importers.csv_times import read_times
from traces.importers.drawn_arrivals import checked_rate_per_s, with_drawn_arrivals
from traces.importers.requests import DROPPED_ZERO_OUTPUT, Sieve, check_limit, first_rows, workload_of
from traces.replacing import replacing
from traces.times import KEY, OPEN, Clock, ParsedTimes
from traces.turns import CONVERSATIONS_NOT_WRITTEN, Turns
from traces.workload import INT64_MAX, Workload, taken

# Writes a workload as plain CSV, some rows at a time.

_ROWS: Final = 50_000  # a few MB of text at a time
_BREAKS: Final = ("\n", "\r", "\0")
_COLUMNS: Final = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_new_tokens", "model", "priority", "session",
    "images", "source_duration_ns",
)  # fmt: skip


def write_plain_csv(workload: Workload, path: str | Path, *, overwrite: bool = False) -> tuple[str, ...]:
    """Write every column that the workload has; gzipped when the name ends in .gz.

    What is read back has the same columns. Name, source, labels and counts of dropped rows are not in the
    file. Returns what of a request the format cannot hold: which one continues which. Raises TraceError when
    the file exists and ``overwrite`` is False, when it cannot be written, or for a cell that would not be
    read back.
    """
    _check(workload)
    path = Path(path)
    names = [column for column in _COLUMNS if getattr(workload, column) is not None]
    columns = [getattr(workload, column) for column in names]
    if isinstance(workload.prefix, PrefixBlocks):
        names.append(f"prefix_{workload.prefix.whole_block_tokens}")
        columns.append(workload.prefix)
    words = [_quoted_words(column) if isinstance(column, Names) else () for column in columns]
    with replacing(path, overwrite) as half, half.open("xb") as file:
        if path.name.endswith(".gz"):
            # Without a name and a time in it, so that the same workload gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
                _write(zipped, workload, names, columns, words)
        else:
            _write(file, workload, names, columns, words)
    return (CONVERSATIONS_NOT_WRITTEN,) if isinstance(workload.prefix, Turns) else ()


def _write(
    file: IO[bytes] | gzip.GzipFile,
    workload: Workload,
    names: list[str],
    columns: list[Any],
    words: Sequence[Sequence[str]],
) -> None:
    file.write((",".join(names) + "\n").encode())
    for rows in workload.blocks(_ROWS):
        cells = [_cells(taken(column, rows), quoted) for column, quoted in zip(columns, words, strict=True)]
        lines = [",".join(row) for row in zip(*cells, strict=True)]
        if max(map(len, lines)) > reading.BLOCK_BYTES // 4:  # a character has at most 4 bytes
            raise TraceError(
                f"{workload.name}: a request has too many prefix blocks for a line of CSV: write Parquet"
            )
        file.write(("\n".join(lines) + "\n").encode())


def _cells(column: Any, quoted: Sequence[str]) -> Iterator[str]:
    if isinstance(column, Names):
        return (quoted[code] for code in column.codes.tolist())
    if isinstance(column, PrefixBlocks):
        ids, at = list(map(str, column.ids.tolist())), column.offsets.tolist()
        return (" ".join(ids[a:b]) for a, b in pairwise(at))
    return map(str, column.tolist())


def _quoted_words(names: Names) -> tuple[str, ...]:
    """Words as cells, and at the end an empty one, which the code of a row without a word (-1) finds."""
    return (*(_quoted(word) for word in names.words), "")


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"' if '"' in word or "," in word else word


def _check(workload: Workload) -> None:
    """TraceError for what would not be read back as it is."""
    for column in ("model", "session"):
        names = getattr(workload, column)
        if names is not None:
            _check_words(workload, column, names)
    if isinstance(workload.prefix, PrefixBlocks) and workload.prefix.block_tokens > 999_999_999:
        raise TraceError(
            f"{workload.name}: prefix blocks of over 999999999 tokens cannot be written to CSV: make"
            " them smaller"
        )


def _check_words(workload: Workload, column: str, names: Names) -> None:
    used = np.unique(names.codes)
    for code in used[used >= 0].tolist():
        word = names.words[code]
        problem = None
        if any(char in word for char in _BREAKS):
            problem = "has a line break or a NUL"
        elif len(word.encode()) > MAX_WORD_BYTES:
            problem = f"has more than {MAX_WORD_BYTES} bytes"
        if problem:
            raise TraceError(f"{workload.name}: {column} {word[:40]!a} {problem}: give it another name")


LENGTHS: Final = (PROMPT, OUTPUT)
OPTIONAL: Final[dict[str, Kind]] = {
    "max_new_tokens": Whole(1),
    "model": Word(),
    "priority": Whole(-INT64_MAX - 1, INT64_MAX, noun="levels of priority", example=-1),
    "session": Word(blank=True),
    "images": Whole(0, INT64_MAX, noun="images", example=2),
    "source_duration_ns": Whole(-1, INT64_MAX, noun="nanoseconds", blank=-1, example=46926808),
}
DROPPED_ZERO_PROMPT: Final = "zero prompt tokens"
SOME_MODELS: Final = "models not read: some rows name none"


def read_plain_csv(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    time_unit: str | None = None,
    columns: str | None = None,
    rate_per_s: float | None = None,
    gap_cv: float = 1.0,
    seed: int = 0,
) -> Workload:
    """The requests of one file, plain or gzipped; arrivals count from the run's start, as written.

    Times since 1970 and dates count from the first arrival. time_unit: of arrivals, see ``traces.times``;
    None: what the column's name says, or else the values. columns: our columns and the file's, such as
    ``[arrival_s:sent,prompt_tokens:in]``; None: by our names and the common ones. Where the needed columns
    have our names, others are refused; otherwise they are not read, and a label names them. rate_per_s,
    gap_cv, seed: of drawn arrivals, for a file without any. ``limit`` keeps the first rows; the whole file is
    still judged. In a file with other names than ours, rows with 0 tokens are left out and counted.
    Raises TraceError naming file, line, column and remedy for whatever is not a request: other columns,
    lengths of 0 under our names.
    """
    check_limit(limit)
    file = Path(path)
    header = read_header(file)
    found = columns_of(header, columns, file)
    _check_header(found, header, rate_per_s is not None, file)
    table, times = _table_of(file, found, time_unit)
    rows, labels = first_rows(table.rows, limit)
    values = {ours: table.columns[theirs] for ours, theirs in found.theirs.items() if theirs in table.columns}
    values = {"prefix" if PREFIX.fullmatch(ours) else ours: column for ours, column in values.items()}
    values["arrival_ns"] = np.zeros(table.rows, np.int64) if times is None else times.arrival_ns
    if found.foreign and "model" in values and (values["model"].codes == ABSENT).any():
        del values["model"]
        labels = (*labels, SOME_MODELS)
    sieve = Sieve.of(rows)
    sieve.drop(values[PROMPT] == 0, DROPPED_ZERO_PROMPT)
    sieve.drop(values[OUTPUT] == 0, DROPPED_ZERO_OUTPUT)
    labels = (*labels, *(found.labels if found.foreign else ()), *(() if times is None else times.labels))
    workload = workload_of(table.origin, sieve, values, name=name, labels=labels)
    if times is not None:
        return workload
    rate = checked_rate_per_s(rate_per_s, file)
    return with_drawn_arrivals(workload, rate_per_s=rate, seed=seed, gap_cv=gap_cv, reader="csv")


def _check_header(found: Columns, header: tuple[str, ...], drawn: bool, file: Path) -> None:
    """TraceError for columns that are missing or two of one kind."""
    place = Place(file, 1)
    prefixes = [ours for ours in found.theirs if PREFIX.fullmatch(ours)]
    if len(prefixes) > 1:
        raise place.error("another column also holds prefix blocks", "keep one", found.theirs[prefixes[1]])
    arrivals = [ours for ours in (*ARRIVALS, ARRIVAL) if ours in found.theirs]
    if len(arrivals) > 1:
        raise place.error(f"column {arrivals[0]} also holds arrivals", "keep one of the two", arrivals[1])
    if arrivals and drawn:
        raise TraceError(
            f"{file} has arrivals of its own ({found.theirs[arrivals[0]]}): leave out trace.rate_per_s"
        )
    needs(found, header, file, drawn=drawn)


def _table_of(file: Path, found: Columns, time_unit: str | None) -> tuple[Table, ParsedTimes | None]:
    """The columns by the file's names, and the times, which are taken out of them."""
    length = Whole(0, pointed=True) if found.foreign else Whole(1)
    kinds: dict[str, Kind] = {PROMPT: length, OUTPUT: length} | OPTIONAL
    if found.foreign:
        kinds["model"] = Word(blank=True)
    fields = [
        Field(found.theirs.get(ours, ours), kind, required=ours in LENGTHS) for ours, kind in kinds.items()
    ]
    fields += [
        Field(theirs, Ids(int(ours.partition("_")[2])))
        for ours, theirs in found.theirs.items()
        if PREFIX.fullmatch(ours)
    ]
    ignored = found.ignored if found.foreign else ()
    if found.arrival is None:
        if time_unit is not None:
            raise TraceError(f"{file} has no arrivals of its own: leave out {KEY}={time_unit}")
        return read_table(file, fields, lambda column: column in ignored), None
    arrival = found.theirs[found.arrival]
    return read_times(
        file,
        OPEN if found.unit is None else Clock(found.unit, stated=True),
        time_unit,
        arrival,
        lambda path, unit: read_table(
            path, (Field(arrival, moment(unit)), *fields), lambda column: column in ignored
        ),
    )
