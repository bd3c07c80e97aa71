"""The arrivals of a Parquet file: whole or decimal numbers of some unit, or dates."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.arrow import numbers_of
from traces.csv.stamp import Stamp
from traces.errors import TraceError
from traces.importers.json_lines import shorter
from traces.times import DIGITS, ISO, OTHER_UNIT, Clock, Ints, read_in_unit
from traces.workload import INT64_MAX

_FLOATS: Final = 2.0**63


def read_arrivals(
    values: Any, time_unit: str | None, column: str, file: Path
) -> tuple[Ints, tuple[str, ...]]:
    """The arrivals of a column without nulls in ns, and the labels about their unit. Raises TraceError."""
    if not len(values):
        return np.zeros(0, dtype=np.int64), ()  # refused as a workload without requests
    _, times = read_in_unit(
        Clock("ns", stated=True),
        time_unit,
        _first_date(values),
        lambda unit: (None, _arrivals_ns(values, unit, f"{file}, column {column}")),
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


def _first_date(values: Any) -> str | None:
    """The first value as text if the column holds dates or texts, for the rules of ``traces.times``."""
    import pyarrow as pa

    kind = values.type
    if len(values) and (pa.types.is_timestamp(kind) or is_text(kind)):
        return str(values[0].as_py())
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
