"""Reads CSV files of measured timings: ServeTwin's own columns, and LLMServingSim's output."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import Final

from servetwin.compare.measured import NS_PER_MS, NS_PER_S, TIMES, RequestTiming
from servetwin.compare.values import NO_NUMBER, FilePlace
from serving.record.json_text import json_data

OWN_COLUMNS: Final = ("request", "arrival_s", "prompt_tokens", "output_tokens", *TIMES)
# serving/core/scheduler.py, save_output; times in ns, TTFT includes queueing.
SERVINGSIM_COLUMNS: Final = (
    "instance id", "request id", "model", "input", "output", "arrival", "end_time", "latency",
    "queuing_delay", "TTFT", "TPOT", "ITL",
)  # fmt: skip
_LARGEST_CELL: Final = 1 << 24  # one cell may hold the gaps of 100,000 tokens and more


def own_csv(name: str, text: str) -> list[RequestTiming]:
    """Read any of ``OWN_COLUMNS`` in any order; times in ms, arrivals in s; empty cells are unknown."""
    return [own_timing(place, row) for place, row in _rows(name, text, OWN_COLUMNS)]


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
        **times,
    )


def llmservingsim_csv(name: str, text: str) -> list[RequestTiming]:
    """Read LLMServingSim's own simulation; output tokens are counted from the gaps."""
    return [_of_servingsim(place, row) for place, row in _rows(name, text, SERVINGSIM_COLUMNS)]


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
    )


def header_of(text: str) -> list[str]:
    """Return the names in the first line."""
    csv.field_size_limit(_LARGEST_CELL)
    first = next(islice(csv.reader(io.StringIO(text)), 1), [])
    return [column.strip() for column in first]


def _rows(name: str, text: str, known: tuple[str, ...]) -> Iterator[tuple[FilePlace, dict[str, object]]]:
    """Yield (place, cells by column) of every row."""
    whole, columns = FilePlace(name), header_of(text)
    if not columns:
        whole.refuse(
            "there is nothing in it", "give a file with a line of column names and a row per request"
        )
    whole.only(columns, known, "column")
    if len(set(columns)) < len(columns):
        whole.refuse("a column comes twice", "keep one of them")
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text)), start=1):
            place = FilePlace(f"{name}, line {number}")
            if number == 1 or not cells:
                continue
            if len(cells) != len(columns):
                place.refuse(
                    f"there are {len(cells)} cells for {len(columns)} columns", "write one cell per column"
                )
            yield place, dict(zip(columns, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        whole.refuse(f"it is no CSV ({error})", "write cells with commas between")
