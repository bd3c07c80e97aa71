"""Workloads as Parquet files: a column of the workload is a column of the file, the rest is in its metadata.

Columns: arrival_ns, prompt_tokens, output_tokens and, where the workload has them, max_new_tokens, priority,
images, source_duration_ns (int64), model, session (text, null where a row has none), prefix (lists of int64).
Metadata: servetwin.name, .source, .labels, .dropped, .rows_read, .prefix_block_tokens,
.prefix_common_tokens, each a JSON text. The column prefix has lists of block ids, or with the last key the
conversation that each row is a turn of.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.arrow import arrow_numbers, arrow_words, codes_of, numbers_of
from traces.columns import ABSENT, Names, PrefixBlocks, opaque_ids
from traces.csv.stamp import Stamp
from traces.errors import TraceError
from traces.importers.json_lines import (
    STRICT,
    JsonProblem,
    json_problem,
    shorter,
    shown,
)
from traces.importers.requests import check_limit, in_order
from traces.reading import Origin, most_unpacked_bytes
from traces.replacing import replacing
from traces.times import DIGITS, ISO, OTHER_UNIT, Clock, Ints, read_in_unit
from traces.turns import Turns
from traces.workload import COLUMNS, INT64_MAX, Workload, taken

# The arrivals of a Parquet file: whole or decimal numbers of some unit, or dates.

_FLOATS: Final = 2.0**63


NS: Final = Clock("ns", stated=True)


def read_arrivals(
    values: Any, time_unit: str | None, column: str, file: Path, clock: Clock = NS
) -> tuple[Ints, tuple[str, ...]]:
    """The arrivals of a column without nulls in ns, and the labels about their unit. Raises TraceError."""
    place = f"{file}, column {column}"
    if not len(values):
        return np.zeros(0, dtype=np.int64), ()  # refused as a workload without requests
    _, times = read_in_unit(
        clock,
        time_unit,
        _first(values),
        lambda unit: (None, _arrivals_ns(values, unit, place)),
        place=place,
    )
    return times.arrival_ns, times.labels


def _arrivals_ns(values: Any, unit: str, place: str) -> Ints:
    """The column in ns as written, decimals to the nearest; dates since 1970."""
    import pyarrow as pa

    kind = values.type
    if unit == ISO:
        return _dates_ns(values, place)
    scale = 10 ** DIGITS[unit]
    if pa.types.is_integer(kind):
        try:
            numbers = numbers_of(values.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise TraceError(f"{place} has numbers beyond int64: write smaller ones") from error
        if abs(numbers).max(initial=0) > INT64_MAX // scale:
            raise _too_late(place, unit)
        scaled: NDArray[np.int64] = numbers * scale
        return scaled
    if not pa.types.is_floating(kind) or unit == "ns":
        raise TraceError(f"{place} holds {kind_of(values)}: write int64, {OTHER_UNIT}")
    decimals = numbers_of(values.cast(pa.float64())) * scale
    if not (np.isfinite(decimals).all() and abs(decimals).max(initial=0.0) < _FLOATS):
        raise _too_late(place, unit)
    rounded: NDArray[np.int64] = np.rint(decimals).astype(np.int64)
    return rounded


def _too_late(place: str, unit: str) -> TraceError:
    return TraceError(
        f"{place} has times in {unit} that are beyond 292 years or no numbers: write others, {OTHER_UNIT}"
    )


def _first(values: Any) -> str | Decimal | None:
    """The first value for the rules of ``traces.times``: dates and texts as text, numbers as decimals."""
    import pyarrow as pa

    kind = values.type
    if len(values) and (pa.types.is_timestamp(kind) or is_text(kind)):
        return str(values[0].as_py())
    if len(values) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return Decimal(str(values[0].as_py()))
    return None


def _dates_ns(values: Any, place: str) -> Ints:
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        try:
            stamps = values.cast(pa.timestamp("ns", values.type.tz))
        except pa.ArrowInvalid as error:
            raise TraceError(f"{place} has dates outside the years 1678 to 2261: correct them") from error
        return numbers_of(stamps.cast(pa.int64()))
    if not is_text(values.type):
        raise TraceError(f"{place} holds {kind_of(values)}: write dates, {OTHER_UNIT}")
    judged = [_date(text, row, place) for row, text in enumerate(values.to_pylist())]
    for row, (_, zoned) in enumerate(judged):
        if zoned != judged[0][1]:
            problem = f"row {row} (the first is 0) has {'a' if zoned else 'no'} time zone and row 0 another"
            raise TraceError(f"{place}: {problem}: write all with +00:00 or all without")
    return np.array([stamp_ns for stamp_ns, _ in judged], dtype=np.int64)


def _date(text: str, row: int, place: str) -> tuple[int, bool]:
    return Stamp().judge(
        text,
        lambda problem, remedy: TraceError(f"{place}, row {row} (the first is 0): {problem}: {remedy}"),
    )


def is_text(kind: Any) -> bool:
    """Whether a pyarrow type is that of texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def kind_of(values: Any) -> str:
    """The type of a column as a sentence shows it."""
    return shorter(" ".join(str(values.type).split()))


ARRIVAL: Final = "arrival_ns"
NEEDED: Final = (ARRIVAL, "prompt_tokens", "output_tokens")
NAMES: Final = ("model", "session")
PREFIX: Final = "prefix"
KEY: Final = "servetwin."
_VALUE_BYTES: Final = 8


def read_parquet(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    time_unit: str | None = None,
) -> Workload:
    """The workload of one file, as ``write_parquet`` wrote it or with the needed columns by another hand.

    time_unit: of arrival_ns, see ``traces.times``; None: ns, or dates. name: instead of the one written.
    limit: only the first rows; the whole file is still judged.
    Raises TraceError naming the file, the column or metadata key and the remedy for other columns, other
    types, nulls (but in session), values a workload cannot have, and damage of any kind.
    """
    check_limit(limit)
    file = Path(path)
    origin = Origin.of(file)
    table = _table(file)
    about = _about(table.schema.metadata or {}, file)
    size, common = about.pop("prefix_block_tokens", None), about.pop("prefix_common_tokens", None)
    columns: dict[str, Any] = {}
    with damage_of(file):
        for column in table.column_names:
            if column != ARRIVAL:
                columns[column] = _column(table[column], column, size, common, file)
        refuse_nulls(table[ARRIVAL], ARRIVAL, file)
        columns[ARRIVAL], labels = read_arrivals(table[ARRIVAL], time_unit, ARRIVAL, file)
    order, unsorted = in_order(columns[ARRIVAL])
    if unsorted:
        columns = {column: taken(values, order) for column, values in columns.items()}
    about["labels"] = (*about.get("labels", ()), *labels, *unsorted)
    given = {"name": origin.name, "source": origin.source, "rows_read": table.num_rows} | about
    if name:
        given["name"] = name
    try:
        workload = Workload(**columns, **given)
    except TraceError as error:
        raise TraceError(f"{file}, {error}") from error
    return workload if limit is None else workload.limited(limit)


def write_parquet(workload: Workload, path: str | Path, *, overwrite: bool = False) -> tuple[str, ...]:
    """Writes everything the workload has, with a checksum in every page; read_parquet gives it back.

    Returns what the format cannot hold: nothing.

    Raises TraceError when the file exists (unless ``overwrite``) or cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for column in COLUMNS:
        values = getattr(workload, column)
        if isinstance(values, Names):
            codes = arrow_numbers(values.codes, values.codes >= 0)
            values = pa.DictionaryArray.from_arrays(codes, arrow_words(values.words))
        elif isinstance(values, PrefixBlocks):
            values = _lists(values)
        elif isinstance(values, Turns):
            values = arrow_numbers(values.stream)
        elif values is not None:
            values = arrow_numbers(values)
        if values is not None:
            columns[column] = values
    file = Path(path)
    table = pa.table(columns).replace_schema_metadata(_metadata(workload))
    with replacing(file, overwrite) as half:
        pq.write_table(table, half, compression="zstd", write_page_checksum=True)
    return ()


def _lists(prefix: PrefixBlocks) -> Any:
    """A list per row; 64-bit offsets only where 32 do not do, because fewer programs know them."""
    import pyarrow as pa

    ids = arrow_numbers(prefix.ids)
    if len(prefix.ids) >= 2**31:
        return pa.LargeListArray.from_arrays(arrow_numbers(prefix.offsets), ids)
    return pa.ListArray.from_arrays(arrow_numbers(prefix.offsets.astype(np.int32)), ids)


def _metadata(workload: Workload) -> dict[str, str]:
    about: dict[str, Any] = {
        "name": workload.name,
        "source": workload.source,
        "labels": workload.labels,
        "dropped": workload.dropped,
        "rows_read": workload.rows_read,
    }
    if isinstance(workload.prefix, PrefixBlocks):
        about["prefix_block_tokens"] = workload.prefix.whole_block_tokens
    elif workload.prefix is not None:
        about["prefix_common_tokens"] = workload.prefix.common_tokens
    return {KEY + key: json.dumps(value) for key, value in about.items()}


@contextmanager
def damage_of(file: Path) -> Iterator[None]:
    """Whatever pyarrow raises on bytes that are no sound Parquet file, as one sentence."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise TraceError(f"{file} is not a valid Parquet file ({reason}): write it again") from error


def _table(file: Path) -> Any:
    """All columns, those of names with each different word held once."""
    import pyarrow.parquet as pq

    with damage_of(file):
        with pq.ParquetFile(file) as opened:
            _check_columns(opened.schema_arrow.names, file)
            check_size(opened.metadata, file)
            words = [
                field.name for field in opened.schema_arrow if field.name in NAMES and is_text(field.type)
            ]
        with pq.ParquetFile(file, page_checksum_verification=True, read_dictionary=words) as opened:
            return opened.read()


def check_size(metadata: Any, file: Path) -> None:
    """Refuse, before any is read, columns that would be far larger in memory than they are in the file."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    values_bytes = _VALUE_BYTES * sum(column.num_values for column in columns)
    unpacked_bytes = max(values_bytes, sum(column.total_uncompressed_size for column in columns))
    _refuse_large(unpacked_bytes, file)


def _refuse_large(unpacked_bytes: int, file: Path) -> None:
    most_bytes = most_unpacked_bytes(file.stat().st_size)
    if unpacked_bytes > most_bytes:
        raise TraceError(
            f"{file} unpacks to {unpacked_bytes} bytes of columns, and the limit for a file of its size is "
            f"{most_bytes}: keep fewer rows or shorter names, or write the trace as CSV"
        )


def _check_columns(columns: list[str], file: Path) -> None:
    for column in NEEDED:
        if column not in columns:
            raise TraceError(f"{file} has no column {column}: write at least {', '.join(NEEDED)}")
    for column in columns:
        if column not in COLUMNS:
            raise TraceError(f"{file}, column {shown(column)} is unknown: keep only {', '.join(COLUMNS)}")
        if columns.count(column) > 1:
            raise TraceError(f"{file}, column {column} occurs twice: keep one")


def _column(values: Any, column: str, size: int | None, common: int | None, file: Path) -> Any:
    import pyarrow as pa

    if column in NAMES:
        return names_of(values, column, file)
    refuse_nulls(values, column, file)
    if column == PREFIX and common is None:
        return prefix_blocks(values, size, file)
    if not pa.types.is_integer(values.type):
        raise TraceError(f"{file}, column {column} holds {kind_of(values)}: write int64")
    numbers = _int64(values, column, file)
    return Turns(numbers, common) if column == PREFIX and common is not None else numbers


def refuse_nulls(values: Any, column: str, file: Path) -> None:
    """TraceError at the first row of a column that has no value."""
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise TraceError(f"{file}, column {column}: row {row} (the first is 0) is null: write its value")


def _int64(values: Any, column: str, file: Path) -> NDArray[np.int64]:
    import pyarrow as pa

    try:
        return numbers_of(values.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        raise TraceError(f"{file}, column {column} has numbers beyond int64: write smaller ones") from error


def names_of(values: Any, column: str, file: Path) -> Names:
    """The column of names; rows of all but model may lack one. Raises TraceError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not is_text(kind):
        raise TraceError(f"{file}, column {column} holds {kind_of(values)}: write texts")
    if column == "model" and values.null_count:
        row = values.is_null().index(True).as_py()
        raise TraceError(
            f"{file}, column {column}: row {row} (the first is 0) is null: name a model in every row"
        )
    _check_words(values, column, file)
    encoded = pc.dictionary_encode(values.cast(pa.large_string())).combine_chunks()
    chunk = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    try:
        return Names(codes_of(chunk.indices, ABSENT), tuple(chunk.dictionary.to_pylist()))
    except TraceError as error:
        raise TraceError(f"{file}, column {column}: {error}") from error


def _check_words(values: Any, column: str, file: Path) -> None:
    """Refuse a column whose words, written out once per row, would fill the memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(values.type):
        return
    lengths = (
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0 for chunk in values.chunks
    )
    _refuse_large(sum(lengths), file)


def prefix_blocks(values: Any, size: int | None, file: Path) -> PrefixBlocks:
    """The column of lists of block ids, ``size`` tokens each. Raises TraceError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(
        kind.value_type
    ):
        raise TraceError(f"{file}, column {PREFIX} holds {kind_of(values)}: write lists of int64")
    if size is None:
        raise TraceError(
            f"{file} does not give the size of its prefix blocks: write the metadata key"
            f" {KEY}prefix_block_tokens"
        )
    ids = pc.list_flatten(values)
    if ids.null_count:
        raise TraceError(f"{file}, column {PREFIX} has a null inside a list: write whole numbers")
    counts = numbers_of(pc.list_value_length(values)).astype(np.int64)
    try:
        return PrefixBlocks(size, np.concatenate(([0], np.cumsum(counts))), _ids(ids, file))
    except TraceError as error:
        raise TraceError(f"{file}, column {PREFIX}: {error}") from error


def _ids(ids: Any, file: Path) -> NDArray[np.int64]:
    """Ids of blocks, which are opaque: unsigned ones of 64 bits get others."""
    import pyarrow as pa

    if pa.types.is_uint64(ids.type):
        return opaque_ids(numbers_of(ids))
    return _int64(ids, PREFIX, file)


def _about(metadata: dict[bytes, bytes], file: Path) -> dict[str, Any]:
    """The metadata that is ours, by field; missing keys are left out."""
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (lambda value: isinstance(value, str) and value != "", "a text"),
        "source": (lambda value: isinstance(value, str), "a text"),
        "labels": (_are_texts, "a list of texts"),
        "dropped": (
            lambda value: isinstance(value, dict) and all(_is_count(n) for n in value.values()),
            "numbers of rows by reason",
        ),
        "rows_read": (_is_count, "a whole number"),
        "prefix_common_tokens": (_is_count, "a whole number"),
        "prefix_block_tokens": (lambda value: _is_count(value) and value >= 1, "a whole number from 1"),
    }
    about = {}
    for field, (sound, wanted) in checks.items():
        text = metadata.get((KEY + field).encode())
        if text is not None:
            about[field] = value = _parsed(text, KEY + field, file)
            if not sound(value):
                raise TraceError(
                    f"{file}, metadata key {KEY}{field} does not hold {wanted}: write it as JSON"
                )
    return about


def _parsed(text: bytes, key: str, file: Path) -> Any:
    try:
        return STRICT.decode(text.decode("utf-8"))
    except (ValueError, RecursionError, JsonProblem) as error:
        raise TraceError(f"{file}, metadata key {key}: {json_problem(error)}: write it as JSON") from error


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
