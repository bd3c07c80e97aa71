"""Reads a record from a CSV file: a column of times, and columns by our names, common ones or Prometheus'.

Grafana's "Series joined by time" is such a file; its columns may be named by a legend such as
``vllm:num_requests_waiting{instance="a:8000"}``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from servetwin.advising.columns import COLUMNS, column_of
from servetwin.advising.from_series import record_of_series
from servetwin.advising.metric_names import metric_of
from servetwin.advising.record import Record
from servetwin.advising.time_series import TimeSeries
from serving.vocabulary.errors import UserError
from traces.csv.line import Place, absent, split_line
from traces.synthetic.rate_file import time_column, times_in_s

EXAMPLE: Final = (
    f"write a first line such as time,{','.join(list(COLUMNS)[:1])},waiting,running,kv_use,requests_per_s "
    "and a row for every instant"
)
_SERIES: Final = re.compile(r"([A-Za-z_:][\w:]*)\s*\{(.*)\}")
_LABEL: Final = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SEPARATOR: Final = "sep="  # Excel's first line in exports of Grafana


def record_of_table(path: Path, text: bytes, renamed: Mapping[str, str]) -> Record:
    """Return the record. ``renamed``: the file's name of a column -> ours. Errors name line and column."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    begin = 1 if lines[0].startswith(_SEPARATOR.encode()) else 0
    rows = list[tuple[Place, list[str]]]()
    for number, line in enumerate(lines[begin:], begin + 1):
        if line.strip():
            place = Place(path, number)
            rows.append((place, split_line(line.removesuffix(b"\r"), place)))
    if len(rows) < 3:
        raise UserError(f"{path} has fewer than two rows below its header: {EXAMPLE}")
    (_, header), *rows = rows
    header = [name.strip() for name in header]
    for name in renamed:
        if name not in header:
            raise UserError(f"{path} has no column {name}, of columns=: write one of {', '.join(header)}")
    time, unit = time_column(header, path, EXAMPLE)
    for place, cells in rows:
        if len(cells) != len(header):
            raise place.error(f"{len(cells)} cells, and the header has {len(header)}", "write as many")
    times, _ = times_in_s([(place.cell(header[time]), cells[time]) for place, cells in rows], unit)
    at_s = np.array(times)
    late = np.flatnonzero(np.diff(at_s) <= 0)
    if len(late):
        raise rows[late[0] + 1][0].error(
            "the time is not later than that of the row above", "sort the rows", header[time]
        )
    series = [
        _series(path, renamed.get(name, name), name, at_s, [(place, cells[at]) for place, cells in rows])
        for at, name in enumerate(header)
        if at != time
    ]
    return record_of_series(str(path), series, can_rename=True)


def _series(
    path: Path, name: str, column: str, at_s: np.ndarray, cells: list[tuple[Place, str]]
) -> TimeSeries:
    """Return one column as a series; numbers are only asked of columns that are read."""
    labels, metric = {}, name
    if found := _SERIES.fullmatch(name):
        metric, labels = found[1], dict(_LABEL.findall(found[2]))
    is_read = metric_of(metric) is not None or column_of(metric) is not None
    values = np.array([_number(place, column, text) for place, text in cells]) if is_read else at_s * np.nan
    known = np.isfinite(values) if is_read else np.full(len(at_s), True)
    return TimeSeries(metric, labels, at_s[known], values[known], f"{path}, column {column}")


def _number(place: Place, column: str, text: str) -> float:
    if absent(text.strip()):
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise place.error(
            f"{text.strip()[:40]!r} is no number", "export raw values, without units", column
        ) from None
