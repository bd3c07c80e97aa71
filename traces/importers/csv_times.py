"""A CSV file read in the unit of its times: what the readers of all CSV formats share."""

from collections.abc import Callable
from pathlib import Path

from traces.csv.table import Table, first_cells
from traces.times import Clock, Ints, ParsedTimes, read_in_unit


def read_times(
    path: Path,
    clock: Clock,
    time_unit: str | None,
    column: str,
    read: Callable[[Path, str], Table],
    *,
    from_first: bool = False,
) -> tuple[Table, ParsedTimes]:
    """The table and its times, which are taken out of it. given: ``trace.time_unit``.

    read: the table of the file in a unit. See ``traces.times.read_in_unit``. Raises TraceError.
    """

    def in_unit(unit: str) -> tuple[Table, Ints]:
        table = read(path, unit)
        times_ns = table.columns.pop(column)
        return table, times_ns

    first = first_cells(path).get(column) if time_unit is None else None
    place = f"{path}, column {column}"
    return read_in_unit(clock, time_unit, first, in_unit, from_first=from_first, place=place)
