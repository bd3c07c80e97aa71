"""Requests in a Parquet file of another program: columns by their common names, or as the user says."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.arrow import numbers_of
from traces.column_names import OUTPUT, PREFIX, PROMPT, Columns, columns_of, needs
from traces.columns import ABSENT
from traces.errors import TraceError
from traces.importers.parquet import (
    ARRIVAL,
    NAMES,
    NEEDED,
    check_size,
    damage_of,
    kind_of,
    names_of,
    prefix_blocks,
    read_arrivals,
    read_parquet,
    refuse_nulls,
)
from traces.importers.plain_csv import DROPPED_ZERO_PROMPT, SOME_MODELS
from traces.importers.requests import DROPPED_ZERO_OUTPUT, Sieve, check_limit, first_rows, workload_of
from traces.reading import Origin
from traces.times import OPEN, Clock
from traces.workload import MAX_TOKENS, Workload


def read_parquet_table(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    time_unit: str | None = None,
    columns: str | None = None,
) -> Workload:
    """The workload of a file that we or another program wrote; see ``read_parquet`` for ours.

    columns: our columns and the file's, as of a CSV file; other names than ours are read as of such a file.
    Raises TraceError.
    """
    check_limit(limit)
    file = Path(path)
    origin = Origin.of(file)
    found = _foreign(file, columns)
    if found is None:
        return read_parquet(file, name=name, limit=limit, time_unit=time_unit)
    return _read_foreign(origin, found, name=name, limit=limit, time_unit=time_unit)


def _foreign(file: Path, columns: str | None) -> Columns | None:
    """The file's columns if it has the needed ones under other names than ours, or the user maps some."""
    import pyarrow.parquet as pq

    with damage_of(file):
        names = pq.read_schema(file).names
    if columns is None and all(needed in names for needed in NEEDED):
        return None
    found = columns_of(names, columns, file)
    return found if columns is not None or found.foreign or found.arrival not in (None, ARRIVAL) else None


def _read_foreign(
    origin: Origin, found: Columns, *, name: str | None, limit: int | None, time_unit: str | None
) -> Workload:
    """The requests of one file; rows with 0 tokens are left out and counted, as of a CSV file.

    Raises TraceError naming file, column and remedy for what is no request.
    """
    file = origin.path
    with damage_of(file):
        table = _table(file, found)
        assert found.arrival is not None
        values: dict[str, Any] = {
            ours: _column(table[theirs], ours, theirs, file)
            for ours, theirs in found.theirs.items()
            if ours != found.arrival and not PREFIX.fullmatch(ours)
        }
        for ours, theirs in found.theirs.items():
            if PREFIX.fullmatch(ours):
                refuse_nulls(table[theirs], theirs, file)
                values["prefix"] = prefix_blocks(table[theirs], int(ours.partition("_")[2]), file)
        arrival = found.theirs[found.arrival]
        refuse_nulls(table[arrival], arrival, file)
        clock = OPEN if found.unit is None else Clock(found.unit, stated=True)
        values["arrival_ns"], times = read_arrivals(table[arrival], time_unit, arrival, file, clock)
    rows, labels = first_rows(table.num_rows, limit)
    if "model" in values and (values["model"].codes == ABSENT).any():
        del values["model"]
        labels = (*labels, SOME_MODELS)
    sieve = Sieve.of(rows)
    sieve.drop(values[PROMPT] == 0, DROPPED_ZERO_PROMPT)
    sieve.drop(values[OUTPUT] == 0, DROPPED_ZERO_OUTPUT)
    return workload_of(origin, sieve, values, name=name, labels=(*labels, *found.labels, *times))


def _table(file: Path, found: Columns) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, page_checksum_verification=True) as opened:
        names = opened.schema_arrow.names
        needs(found, names, file)
        check_size(opened.metadata, file)
        return opened.read(columns=list(found.theirs.values()))


def _column(values: Any, ours: str, theirs: str, file: Path) -> Any:
    if ours in NAMES:
        return names_of(values, ours if ours != "model" else "session", file)  # models may lack
    refuse_nulls(values, theirs, file)
    numbers = _whole(values, theirs, file)
    if ours in (PROMPT, OUTPUT) and len(numbers) and not 0 <= numbers.min() <= numbers.max() <= MAX_TOKENS:
        row = int(np.argmax((numbers < 0) | (numbers > MAX_TOKENS)))
        place = f"{file}, column {theirs}: row {row} (the first is 0)"
        raise TraceError(f"{place} has {numbers[row]} tokens: write 0 to {MAX_TOKENS}")
    return numbers


def _whole(values: Any, theirs: str, file: Path) -> NDArray[np.int64]:
    """Whole numbers, also those that another program keeps as floats."""
    import pyarrow as pa

    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        try:
            return numbers_of(values.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise TraceError(
                f"{file}, column {theirs} has numbers that are not whole: correct them"
            ) from error
    raise TraceError(f"{file}, column {theirs} holds {kind_of(values)}: write whole numbers")
