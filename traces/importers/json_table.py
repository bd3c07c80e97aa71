"""Requests as JSON objects with a time and two lengths each, under any names: lines, or one array."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

from traces.checks import whole_number
from traces.column_names import OUTPUT, PREFIX, PROMPT, Columns, columns_of, needs
from traces.columns import Names
from traces.errors import TraceError
from traces.importers.block_ids import Ids, check_count, ids_of, prefix_of
from traces.importers.drawn_arrivals import Draw
from traces.importers.json_lines import (
    JsonTimes,
    Spot,
    int64,
    ints_or_none,
    json_rows,
    names_or_none,
    whole,
    word,
)
from traces.importers.plain_csv import DROPPED_ZERO_PROMPT, SOME_MODELS
from traces.importers.requests import DROPPED_ZERO_OUTPUT, Sieve, check_limit, first_rows, workload_of
from traces.importers.sharegpt import conversations
from traces.reading import Origin, head_of
from traces.times import KEY, OPEN, Clock, Ints, read_in_unit
from traces.workload import INT64_MAX, MAX_TOKENS, Workload

EXAMPLE: Final = '{"arrival_s": 0.5, "prompt_tokens": 700, "output_tokens": 50}'
BLOCK_KEYS: Final = ("hash_ids", "total_hashes")
"""Under which other tools write ids of blocks; total_hashes: Baseten's."""
BLOCK_SIZE: Final = "block_size"
_HEADER_ROWS: Final = 100
Rows = Iterable[tuple[Spot, dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTable:
    """Objects as rows of a workload.

    rows: makes (place, object) of each, as often as it is called. columns: which key is which column of ours.
    clock: of the times. blocks: the key of block ids and the tokens of a block, or None.
    """

    rows: Callable[[], Rows]
    columns: Columns
    clock: Clock
    blocks: tuple[str, int] | None = None
    partial: bool = False
    labels: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Values:
    """The columns while they grow."""

    times: array = field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    prompt: array = field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    output: array = field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    words: dict[str, list[str | None]] = field(default_factory=dict)
    numbers: dict[str, list[int | None]] = field(default_factory=dict)
    ids: list[Ids | None] = field(default_factory=list)


_NUMBERS: Final = {
    "max_new_tokens": (1, MAX_TOKENS),
    "priority": (-INT64_MAX - 1, INT64_MAX),
    "images": (0, INT64_MAX),
    "source_duration_ns": (-1, INT64_MAX),
}


def read_json_table(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    time_unit: str | None = None,
    columns: str | None = None,
    block_tokens: int | None = None,
    partial_prefix: bool = False,
    rate_per_s: float | None = None,
    gap_cv: float = 1.0,
    seed: int = 0,
) -> Workload:
    """The requests of one file; keys inside objects are joined by dots, as in ``usage.prompt_tokens``.

    time_unit: of arrivals, see ``traces.times``; None: what the key says, or else the values. columns: our
    columns and the file's keys (``traces.column_names``); None: by our names and common ones.
    block_tokens: tokens of a block whose ids are in hash_ids or total_hashes; None: the key block_size, or
    they are not read. partial_prefix, limit: as of Mooncake's files. rate_per_s, gap_cv, seed: of drawn
    arrivals, for a file without any. Rows with 0 tokens are left out and counted.
    Raises TraceError naming file, line, key and remedy for whatever is not a request.
    """
    file = Path(path)
    first = [row for _, row in islice(flat_rows(file), _HEADER_ROWS)]
    header = tuple(dict.fromkeys(key for row in first for key in row))
    found = columns_of(header, columns, file)
    needs(found, header, file, drawn=rate_per_s is not None)
    blocks, unread = _blocks(found, first, block_tokens)
    table = JsonTable(
        rows=lambda: flat_rows(file),
        columns=found,
        clock=OPEN if found.unit is None else Clock(found.unit, stated=True),
        blocks=blocks,
        partial=partial_prefix,
        labels=(*found.labels, *unread),
    )
    draw = Draw(rate_per_s, gap_cv, seed, "jsonl")
    return workload_of_table(file, table, draw, name=name, limit=limit, time_unit=time_unit)


def workload_of_table(
    file: Path, table: JsonTable, draw: Draw, *, name: str | None, limit: int | None, time_unit: str | None
) -> Workload:
    """The workload of the rows that ``table`` makes. Raises TraceError."""
    check_limit(limit)
    origin, found = Origin.of(file), table.columns
    arrival = None if found.arrival is None else found.theirs[found.arrival]
    if arrival is not None and draw.rate_per_s is not None:
        raise TraceError(
            f"{file} has arrivals of its own ({arrival}): leave out trace.rate_per_s={draw.rate_per_s!r}"
        )
    if arrival is None and time_unit is not None:
        raise TraceError(f"{file} has no arrivals of its own: leave out {KEY}={time_unit}")

    def read(unit: str) -> tuple[_Values, Ints]:
        values, times = _Values(), JsonTimes(arrival or "", unit)
        for spot, row in table.rows():
            values.times.append(0 if arrival is None else times.ns(row, spot))
            _add(values, row, table, spot)
        return values, int64(values.times)

    first = None if arrival is None else next((row.get(arrival) for _, row in table.rows()), None)
    values, times = read_in_unit(table.clock, time_unit, first, read, place=f"{file}, key {arrival}")
    labels = (*table.labels, *(() if arrival is None else times.labels))
    made, more = _columns(values, table, file)
    rows, limited = first_rows(len(values.prompt), limit)
    sieve = Sieve.of(rows)
    sieve.drop(made[PROMPT] == 0, DROPPED_ZERO_PROMPT)
    sieve.drop(made[OUTPUT] == 0, DROPPED_ZERO_OUTPUT)
    made["arrival_ns"] = times.arrival_ns
    workload = workload_of(origin, sieve, made, name=name, labels=(*limited, *labels, *more))
    return workload if arrival is not None else draw.arrivals(workload, file)


def flat_rows(file: Path) -> Iterator[tuple[Spot, dict[str, Any]]]:
    """(place, object) of every line or element, with the keys of objects inside joined by dots."""
    is_array = head_of(file).lstrip().startswith(b"[")
    for spot, row in conversations(file) if is_array else json_rows(file, EXAMPLE):
        yield spot, _flat(row) if any(isinstance(value, dict) for value in row.values()) else row


def _flat(row: dict[str, Any], depth: int = 2) -> dict[str, Any]:
    flat = dict(row)
    for key, value in row.items():
        if isinstance(value, dict) and depth:
            flat.update({f"{key}.{inner}": item for inner, item in _flat(value, depth - 1).items()})
    return flat


def _blocks(
    found: Columns, first: list[dict[str, Any]], block_tokens: int | None
) -> tuple[tuple[str, int] | None, tuple[str, ...]]:
    """The key of block ids and their size; or None, and a label if there are ids of unknown size."""
    prefix = next((ours for ours in found.theirs if PREFIX.fullmatch(ours)), None)
    if prefix is not None:
        return (found.theirs[prefix], int(prefix.partition("_")[2])), ()
    key = next((key for key in BLOCK_KEYS if any(row.get(key) is not None for row in first)), None)
    sizes = {row.get(BLOCK_SIZE) for row in first}
    if block_tokens is None and len(sizes) == 1 and type(size := sizes.pop()) is int and size > 0:
        block_tokens = size
    if key is None:
        return None, ()
    if block_tokens is None:
        return None, (f"{key} not read: write the size of its blocks as trace.block_tokens=",)
    return (key, whole_number("trace.block_tokens", block_tokens, 1, MAX_TOKENS)), ()


def _add(values: _Values, row: dict[str, Any], table: JsonTable, spot: Spot) -> None:
    theirs = table.columns.theirs
    values.prompt.append(_length(row, theirs[PROMPT], spot))
    values.output.append(_length(row, theirs[OUTPUT], spot))
    for ours in ("model", "session"):
        if ours in theirs:
            values.words.setdefault(ours, []).append(word(row, theirs[ours], spot))
    for ours, (least, most) in _NUMBERS.items():
        if ours in theirs:
            there = row.get(theirs[ours]) is not None
            number = whole(row, theirs[ours], spot, least, most) if there else None
            values.numbers.setdefault(ours, []).append(number)
    if table.blocks is not None:
        key, size = table.blocks
        values.ids.append(ids_of(row, key, spot))
        check_count(values.ids[-1], values.prompt[-1], size, partial=table.partial, spot=spot, key=key)


def _length(row: dict[str, Any], key: str, spot: Spot) -> int:
    """Tokens; 374.0 is 374, as programs write numbers of a column with gaps."""
    value = row.get(key)
    if isinstance(value, Decimal) and 0 <= value <= MAX_TOKENS and value == value.to_integral_value():
        return int(value)
    return whole(row, key, spot)


def _columns(values: _Values, table: JsonTable, file: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Our columns but the arrivals, and labels about what was left out."""
    theirs = table.columns.theirs
    labels: tuple[str, ...] = ()
    made: dict[str, Any] = {PROMPT: int64(values.prompt), OUTPUT: int64(values.output)}
    for ours, numbers in values.numbers.items():
        made[ours] = ints_or_none(numbers, theirs[ours], file)
    made["session"] = names_or_none(values.words.get("session", ()))
    models = values.words.get("model", [])
    if any(model is not None for model in models):
        if None in models:
            labels = (SOME_MODELS,)
        else:
            made["model"] = Names.of(models)
    if table.blocks is not None:
        key, size = table.blocks
        made["prefix"] = prefix_of(values.ids, size, key, file)
    return made, labels
