"""A rate over time from a CSV file: a column of times and one of rates, or of requests counted per row.

The rate of a row holds from its time to the time of the next row. A last row with rate 0 is the end; another
one holds as long as the row before it. Times count from the first row.
"""

import hashlib
import math
import os
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from traces.checks import short_number
from traces.column_names import ARRIVAL, ARRIVALS, common_name, listed
from traces.csv.line import Place, Refuse, split_line
from traces.csv.stamp import Stamp
from traces.errors import TraceError
from traces.reading import line_blocks
from traces.synthetic.rate_stages import KEY, MOST_PER_S, Stages, stages_of_pieces
from traces.times import ISO, OPEN, unit_of_first

MOST_ROWS: Final = 1_000_000
EXAMPLE: Final = "write a first line time,rate (seconds and requests per second) and a row for every change"
# Name without capitals, spaces and punctuation, / as per -> the seconds of its unit.
_RATES: Final = {
    1.0: "rate ratepers ratepersec ratepersecond rps qps requestspers requestspersec requestspersecond"
    " reqpers reqpersec reqpersecond requestrate arrivalrate queriespersecond requestratepers"
    " arrivalratepers",
    60.0: "rpm qpm ratepermin rateperminute requestspermin requestsperminute reqpermin reqperminute",
    3600.0: "rph rateperhour rateperh requestsperhour requestsperh reqperhour",
}  # fmt: skip
_PER_S: Final = {name: seconds for seconds, names in _RATES.items() for name in names.split()}
_COUNTS: Final = ("requests", "count", "counts", "numrequests", "requestcount", "reqs")
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_LONG_UNITS: Final = {
    "min": "min", "mins": "min", "minute": "min", "minutes": "min", "h": "h", "hour": "h", "hours": "h",
    "s": "s", "sec": "s", "second": "s", "seconds": "s",
}  # fmt: skip


def stages_in_file(path: Path) -> Stages:
    """The stages of a file, plain or gzipped. Raises TraceError naming file, line and column."""
    file = path.expanduser()
    if not os.path.lexists(file):
        raise TraceError(
            f"{KEY}={path} is no stages and no file: write stages such as {KEY}=[15@60s,2@60s], or the path"
            " of a CSV file with columns time and rate"
        )
    digest, rows = hashlib.sha256(), list[tuple[Place, list[str]]]()
    for block in line_blocks(file):
        digest.update(block)
        for line in block.removesuffix(b"\n").split(b"\n"):
            place = Place(file, rows[-1][0].line + 1 if rows else 1)
            rows.append((place, split_line(line.removesuffix(b"\r"), place)))
        if len(rows) > MOST_ROWS:
            raise TraceError(f"{file} has more than {MOST_ROWS} rows: write fewer")
    rows = [row for row in rows if any(cell.strip() for cell in row[1])]
    if len(rows) < 3:
        raise TraceError(f"{file} has fewer than two rows below its header: {EXAMPLE}")
    (_, header), *rows = rows
    header = [name.strip() for name in header]
    time, unit = time_column(header, file)
    rate, per_s = _rate_column(header, time, file)
    for place, cells in rows:
        if len(cells) != len(header):
            raise place.error(f"{len(cells)} cells, and the header has {len(header)}", "write as many")
    times_s, unit = times_in_s([(place.cell(header[time]), cells[time]) for place, cells in rows], unit)
    values = [_number(place, header[rate], cells[rate]) for place, cells in rows]
    label = (
        f"rates of {file.name} sha256={digest.hexdigest()}: {header[time]!r} as time"
        f" {'as dates' if unit == ISO else f'in {unit}'}, {header[rate]!r} as {_told(per_s)}"
    )
    return _stages(times_s, values, per_s=per_s, rows=rows, column=header[time], label=label)


def _stages(
    times_s: list[float],
    values: list[float],
    *,
    per_s: float | None,
    rows: list[tuple[Place, list[str]]],
    column: str,
    label: str,
) -> Stages:
    start_s = times_s[0]
    ends_s = [time - start_s for time in times_s[1:]]
    pieces, begin_s = list[tuple[float, float, float, float]](), 0.0
    for (place, _), end_s, value in zip(rows[1:], ends_s, values, strict=False):
        if not end_s > begin_s:
            raise place.error("the time is not later than that of the row above", "sort the rows", column)
        rate = value / (end_s - begin_s if per_s is None else per_s)
        pieces.append((begin_s, end_s, rate, rate))
        begin_s = end_s
    if values[-1] > 0:
        length_s = pieces[-1][1] - pieces[-1][0]
        rate = values[-1] / (length_s if per_s is None else per_s)
        pieces.append((begin_s, begin_s + length_s, rate, rate))
        label += f", the last row holds {short_number(length_s)} s like the row above it"
    if max(piece[2] for piece in pieces) > MOST_PER_S:
        raise TraceError(f"{rows[0][0].path} has a rate above a billion per second: write lower ones")
    return stages_of_pieces(pieces, (label,))


def _told(per_s: float | None) -> str:
    if per_s is None:
        return "requests from a row to the next"
    return {1.0: "requests per second", 60.0: "requests per minute"}.get(per_s, "requests per hour")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("/", " per "))


def time_column(header: list[str], file: Path, example: str = EXAMPLE) -> tuple[int, str | None]:
    """(its place, its unit if the name says one). Raises TraceError, which ends with ``example``."""
    found = list[tuple[int, str | None]]()
    for at, name in enumerate(header):
        last = re.split(r"[^a-z]+", name.lower().strip(" )]"))[-1]
        ours, unit = common_name(name)
        if name in ARRIVALS:
            found.append((at, ARRIVALS[name]))
        elif ours == ARRIVAL:
            found.append((at, unit or (_LONG_UNITS.get(last) if last != _plain(name) else None)))
        elif _plain(name) in ("t", *_LONG_UNITS) or re.match(r"(time|t|start|timestamp)[^a-z]", name.lower()):
            found.append((at, _LONG_UNITS.get(last)))
    if len(found) != 1:
        which = " and ".join(header[at] for at, _ in found)
        problem = f"two columns of times ({which})" if found else f"no column of times among {listed(header)}"
        raise TraceError(f"{file} has {problem}: {example}")
    return found[0]


def _rate_column(header: list[str], time: int, file: Path) -> tuple[int, float | None]:
    """(its place, the seconds of its unit; None: requests counted per row)."""
    rates = [(at, _PER_S[_plain(name)]) for at, name in enumerate(header) if _plain(name) in _PER_S]
    counts = [(at, None) for at, name in enumerate(header) if _plain(name) in _COUNTS and at != time]
    found = rates or counts
    if len(found) != 1:
        which = " and ".join(header[at] for at, _ in found)
        problem = f"two columns of rates ({which})" if found else f"no column of rates among {listed(header)}"
        raise TraceError(
            f"{file} has {problem}: name one of them rate, rps, requests_per_min or requests (those from a"
            " row to the next)"
        )
    return found[0]


def times_in_s(cells: list[tuple[Refuse, str]], unit: str | None) -> tuple[list[float], str]:
    """The times in seconds and their unit: that of the name, dates, since 1970, otherwise seconds."""
    unit = unit_of_first(cells[0][1], OPEN) or unit or "s"
    times = list[float]()
    for refuse, text in cells:
        if unit == ISO:
            times.append(Stamp().judge(text, refuse)[0] / 1e9)
            continue
        number = _decimal(text)
        if number is None:
            raise refuse(f"{text[:40]!r} is no time", "write a number or a date")
        times.append(float(number) * _SECONDS[unit])
    return times, unit


def _number(place: Place, column: str, text: str) -> float:
    number = _decimal(text)
    if number is None or number < 0:
        raise place.error(f"{text[:40]!r} is no rate", "write a number of at least 0", column)
    return float(number)


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and math.isfinite(float(number)) else None
