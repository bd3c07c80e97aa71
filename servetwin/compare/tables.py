"""Reads CSV files of timings: ServeTwin's own columns, LLMServingSim's output and Vidur's."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import Final

from servetwin.compare.measured import MS_PER_S, NS_PER_MS, NS_PER_S, TIMES, RequestTiming
from servetwin.compare.values import NO_NUMBER, FilePlace
from serving.record.json_text import json_data

OWN_COLUMNS: Final = ("request", "arrival_s", "prompt_tokens", "output_tokens", *TIMES)
# serving/core/scheduler.py, save_output; times in ns, TTFT includes queueing.
SERVINGSIM_COLUMNS: Final = (
    "instance id", "request id", "model", "input", "output", "arrival", "end_time", "latency",
    "queuing_delay", "TTFT", "TPOT", "ITL",
)  # fmt: skip
# vidur/metrics/constants.py (microsoft/vidur), times in seconds; Sarathi-Serve writes the same names.
VIDUR_ID: Final = "Request Id"
VIDUR_DELAY: Final = "request_inter_arrival_delay"
VIDUR_COLUMNS: Final = (VIDUR_ID, "prefill_e2e_time")
VIDUR_PREFIXES: Final = ("request_", "prefill_time_", "decode_time_")
_LARGEST_CELL: Final = 1 << 24  # one cell may hold the gaps of 100,000 tokens and more


def own_csv(whole: FilePlace, text: str) -> list[RequestTiming]:
    """Read any of ``OWN_COLUMNS`` in any order; times in ms, arrivals in s; empty cells are unknown."""
    return [own_timing(place, row) for place, row in _rows(whole, text, OWN_COLUMNS)]


def own_timing(place: FilePlace, row: dict[str, object], gaps_ms: tuple[float, ...] = ()) -> RequestTiming:
    """Read a request in ServeTwin's own names; a request without any time has failed."""
    times = {name: place.time(row.get(name), name) for name in TIMES}
    return RequestTiming(
        request=place.whole(row.get("request"), "request"),
        arrival_s=place.number(row.get("arrival_s"), "arrival_s"),
        prompt_tokens=place.whole(row.get("prompt_tokens"), "prompt_tokens"),
        output_tokens=place.whole(row.get("output_tokens"), "output_tokens"),
        gaps_ms=gaps_ms,
        failed=all(value != value or value == NO_NUMBER for value in times.values()),
        place=place.where,
        **times,
    )


def llmservingsim_csv(whole: FilePlace, text: str) -> list[RequestTiming]:
    """Read LLMServingSim's own simulation; output tokens are counted from the gaps."""
    return [_of_servingsim(place, row) for place, row in _rows(whole, text, SERVINGSIM_COLUMNS)]


def _of_servingsim(place: FilePlace, row: dict[str, object]) -> RequestTiming:
    gaps_ns = None
    if row.get("ITL"):
        try:
            gaps_ns = place.numbers(json_data(str(row["ITL"])), "ITL")
        except ValueError:
            place.refuse("ITL is no list of numbers", "write it as [1, 2]")
    return RequestTiming(
        request=place.whole(row.get("request id"), "request id"),
        arrival_s=place.number(row.get("arrival"), "arrival") / NS_PER_S,
        prompt_tokens=place.whole(row.get("input"), "input"),
        output_tokens=None if gaps_ns is None else len(gaps_ns) + 1,
        ttft_ms=place.time(row.get("TTFT"), "TTFT") / NS_PER_MS,
        e2e_ms=place.time(row.get("latency"), "latency") / NS_PER_MS,
        queue_ms=place.time(row.get("queuing_delay"), "queuing_delay") / NS_PER_MS,
        gaps_ms=tuple(gap / NS_PER_MS for gap in gaps_ns or ()),
        place=place.where,
    )


def vidur(whole: FilePlace, text: str) -> list[RequestTiming]:
    """Read Vidur's ``request_metrics.csv``; arrivals are the sum of the delays, in order of id."""
    rows = [(place, row) for place, row in _rows(whole, text, VIDUR_COLUMNS, prefixes=VIDUR_PREFIXES)]
    ids = [place.whole(row.get(VIDUR_ID), VIDUR_ID) for place, row in rows]
    if None not in ids:
        rows = [rows[at] for at in sorted(range(len(rows)), key=ids.__getitem__)]  # type: ignore[arg-type]
    timings, arrival_s = list[RequestTiming](), 0.0
    for at, (place, row) in enumerate(rows):
        delay_s = place.number(row.get(VIDUR_DELAY), VIDUR_DELAY)
        if at:
            arrival_s += delay_s
        timings.append(_of_vidur(place, row, arrival_s))
    return timings


def _of_vidur(place: FilePlace, row: dict[str, object], arrival_s: float) -> RequestTiming:
    """Read a request. ``prefill_e2e_time`` is from its arrival to the first token (docs/metrics.md there)."""
    e2e_s = place.time(row.get("request_e2e_time"), "request_e2e_time")
    return RequestTiming(
        request=place.whole(row.get(VIDUR_ID), VIDUR_ID),
        arrival_s=arrival_s,
        prompt_tokens=place.whole(row.get("request_num_prefill_tokens"), "request_num_prefill_tokens"),
        output_tokens=place.whole(row.get("request_num_decode_tokens"), "request_num_decode_tokens"),
        ttft_ms=place.time(row.get("prefill_e2e_time"), "prefill_e2e_time") * MS_PER_S,
        e2e_ms=e2e_s * MS_PER_S,
        queue_ms=place.time(row.get("request_scheduling_delay"), "request_scheduling_delay") * MS_PER_S,
        failed=e2e_s != e2e_s,
        place=place.where,
    )


def header_of(text: str) -> list[str]:
    """Return the names in the first line."""
    csv.field_size_limit(_LARGEST_CELL)
    first = next(islice(csv.reader(io.StringIO(text)), 1), [])
    return [column.strip() for column in first]


def _rows(
    whole: FilePlace, text: str, known: tuple[str, ...], prefixes: tuple[str, ...] = ()
) -> Iterator[tuple[FilePlace, dict[str, object]]]:
    """Yield (place, cells by column) of every row; columns that begin with one of ``prefixes`` are known."""
    columns = header_of(text)
    if not columns:
        whole.refuse(
            "there is nothing in it", "give a file with a line of column names and a row per request"
        )
    whole.only([name for name in columns if not name.startswith(prefixes)], known, "column")
    if len(set(columns)) < len(columns):
        whole.refuse("a column comes twice", "keep one of them")
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text)), start=1):
            place = whole.at(f"line {number}")
            if number == 1 or not cells:
                continue
            if len(cells) != len(columns):
                place.refuse(
                    f"there are {len(cells)} cells for {len(columns)} columns", "write one cell per column"
                )
            yield place, dict(zip(columns, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        whole.refuse(f"it is no CSV ({error})", "write cells with commas between")
