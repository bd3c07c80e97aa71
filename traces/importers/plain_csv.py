"""The workload schema as a CSV file, to be read and written by people, spreadsheets and other tools.

Columns, in any order: arrival_ns (or arrival_s or arrival_ms, decimals), prompt_tokens, output_tokens, and
any of max_new_tokens, model, priority, session (empty: none), images, source_duration_ns (empty: unknown)
and prefix_N: ids of the prompt's blocks of N tokens, with single spaces between (empty: none).
"""

import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from traces import reading
from traces.columns import Names, PrefixBlocks
from traces.csv.ids import Ids
from traces.csv.line import Place
from traces.csv.moment import moment
from traces.csv.table import Field, read_header, read_table
from traces.csv.whole import Whole
from traces.csv.word import MAX_WORD_BYTES, Word
from traces.errors import TraceError
from traces.importers.csv_times import read_times
from traces.importers.requests import Sieve, check_limit, first_rows, workload_of
from traces.replacing import replacing
from traces.times import Clock
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


ARRIVALS: Final = {"arrival_ns": "ns", "arrival_s": "s", "arrival_ms": "ms"}
"""Column of arrivals -> its unit."""
LENGTHS: Final = (Field("prompt_tokens", Whole(1)), Field("output_tokens", Whole(1)))
OPTIONAL: Final = (
    Field("max_new_tokens", Whole(1), required=False),
    Field("model", Word(), required=False),
    Field(
        "priority", Whole(-INT64_MAX - 1, INT64_MAX, noun="levels of priority", example=-1), required=False
    ),
    Field("session", Word(blank=True), required=False),
    Field("images", Whole(0, INT64_MAX, noun="images", example=2), required=False),
    Field(
        "source_duration_ns",
        Whole(-1, INT64_MAX, noun="nanoseconds", blank=-1, example=46926808),
        required=False,
    ),
)
PREFIX: Final = re.compile(r"prefix_([1-9][0-9]{0,8})", re.ASCII)
"""The column of prefix blocks, named for the tokens of a full one."""


def read_plain_csv(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The requests of one file, plain or gzipped; arrivals count from the run's start, as written.

    Times since 1970 and dates count from the first arrival. time_unit: of arrivals, see ``traces.times``;
    None: what the column's name says. ``limit`` keeps the first rows; the whole file is still judged.
    Raises TraceError naming file, line, column and remedy for whatever is not a request: other columns,
    arrivals that go back, lengths of 0.
    """
    check_limit(limit)
    file = Path(path)
    header = read_header(file)
    arrival = _arrival(header, Place(file, 1))
    prefixes = [column for column in header if PREFIX.fullmatch(column)]
    if len(prefixes) > 1:
        raise Place(file, 1).error("another column also holds prefix blocks", "keep one", prefixes[1])
    blocks = [Field(prefix, Ids(int(prefix.partition("_")[2]))) for prefix in prefixes]
    table, times = read_times(
        file,
        Clock(ARRIVALS[arrival], stated=True),
        time_unit,
        arrival,
        lambda path, unit: read_table(path, (Field(arrival, moment(unit)), *LENGTHS, *OPTIONAL, *blocks)),
    )
    rows, labels = first_rows(table.rows, limit)
    columns = {
        field.name: table.columns[field.name]
        for field in (*LENGTHS, *OPTIONAL)
        if field.name in table.columns
    }
    columns["arrival_ns"] = times.arrival_ns
    if prefixes:
        columns["prefix"] = table.columns[prefixes[0]]
    labels += times.labels
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=labels)


def _arrival(header: tuple[str, ...], place: Place) -> str:
    """The one column of arrivals."""
    columns = [column for column in ARRIVALS if column in header]
    if not columns:
        raise place.error(
            "is missing", "write arrival_ns, or arrival_s or arrival_ms as decimals", "arrival_ns"
        )
    if len(columns) > 1:
        raise place.error(f"column {columns[0]} also holds arrivals", "keep one of the two", columns[1])
    return columns[0]
