"""The workload schema as a CSV file, to be read and written by people, spreadsheets and other tools.

Columns, in any order: arrival_ns (or arrival_s or arrival_ms, decimals), prompt_tokens, output_tokens, and
any of max_new_tokens, model, priority, session (empty: none), images, source_duration_ns (empty: unknown)
and prefix_N: ids of the prompt's blocks of N tokens, with single spaces between (empty: none).
"""

import re
from pathlib import Path
from typing import Final

from traces.csv.ids import Ids
from traces.csv.line import Place
from traces.csv.moment import moment
from traces.csv.table import Field, read_header, read_table
from traces.csv.whole import Whole
from traces.csv.word import Word
from traces.importers.csv_times import read_times
from traces.importers.plain_csv_writer import write_plain_csv
from traces.importers.requests import Sieve, check_limit, first_rows, workload_of
from traces.times import Clock
from traces.workload import INT64_MAX, Workload

__all__ = ["read_plain_csv", "write_plain_csv"]

ARRIVALS: Final = {"arrival_ns": "ns", "arrival_s": "s", "arrival_ms": "ms"}
"""Column of arrivals -> its unit."""
LENGTHS: Final = (Field("prompt_tokens", Whole(1)), Field("output_tokens", Whole(1)))
OPTIONAL: Final = (
    Field("max_new_tokens", Whole(1), required=False),
    Field("model", Word(), required=False),
    Field("priority", Whole(-INT64_MAX - 1, INT64_MAX, "levels of priority", example=-1), required=False),
    Field("session", Word(blank=True), required=False),
    Field("images", Whole(0, INT64_MAX, "images", example=2), required=False),
    Field(
        "source_duration_ns", Whole(-1, INT64_MAX, "nanoseconds", blank=-1, example=46926808), required=False
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
    prefixes = [found for found in header if PREFIX.fullmatch(found)]
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
    found = [column for column in ARRIVALS if column in header]
    if not found:
        raise place.error(
            "is missing", "write arrival_ns, or arrival_s or arrival_ms as decimals", "arrival_ns"
        )
    if len(found) > 1:
        raise place.error(f"column {found[0]} also holds arrivals", "keep one of the two", found[1])
    return found[0]
