"""Detects the format of a measured file and reads it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import read_limited
from servetwin.compare import records, reports, tables
from servetwin.compare.collected import collected
from servetwin.compare.measured import Measured, Timing
from servetwin.compare.own_result import REQUESTS, own_result
from servetwin.compare.records import Line
from servetwin.compare.values import Place
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

OWN_RESULT: Final = "servetwin"
MOST_BYTES: Final = 512 << 20  # a run of some 100,000 requests with the time of every token
CSV: Final[dict[str, Callable[[str, str], list[Timing]]]] = {
    "csv": tables.own_csv,
    "llmservingsim_csv": tables.llmservingsim_csv,
}
LINES: Final[dict[str, Callable[[Iterator[Line]], list[Timing]]]] = {
    "jsonl": records.own_lines,
    "llmservingsim": records.llmservingsim_bench,
    "aiperf": records.aiperf,
}
REPORTS: Final[dict[str, Callable[[Place, Any], tuple[list[Timing], list[str]]]]] = {
    "vllm_bench": reports.vllm_bench,
    "guidellm": reports.guidellm,
}
FORMATS: Final = (*CSV, *LINES, *REPORTS, OWN_RESULT)


def read_measured(path: Path, format: str | None = None, run: int | None = None) -> Measured:
    """Read the timings in ``path``; ``format`` None: detected. ``run``: index of the run in the file.

    A folder is a result of ServeTwin, such as that of ``realexec run``. Raises UserError.
    """
    if path.is_dir() or format == OWN_RESULT or path.suffix == ".parquet":
        if run is not None:
            raise UserError(f"{path} holds one run: leave run={run} out")
        return own_result(path / REQUESTS if path.is_dir() else path, OWN_RESULT)
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text ({error.reason}): give one of {', '.join(FORMATS)}") from None
    found = format or _format_of(str(path), text)
    rows, remarks = _rows(str(path), text, found, run)
    if not rows:
        raise UserError(f"{path} holds no requests: give a file with one row per request")
    rows = [replace(row, gaps_ms=()) if row.failed else row for row in rows]
    return collected(path, found, sha256(content).hexdigest(), rows, remarks)


def _content(path: Path) -> bytes:
    try:
        return read_limited(path, MOST_BYTES)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): write servetwin compare DIR MEASURED with a file of "
            "per-request timings, or the out= of another run"
        ) from None


def _format_of(name: str, text: str) -> str:
    """Detect the format by the outermost keys or the column names."""
    if not text.lstrip().startswith(("{", "[")):
        return "llmservingsim_csv" if "queuing_delay" in tables.header_of(text) else "csv"
    whole = _document(text)
    first = whole if whole is not None else next(_lines(name, text))[1]
    keys = first if isinstance(first, dict) else {}
    for mark, format in (
        ("benchmarks", "guidellm"),
        ("ttfts", "vllm_bench"),
        ("metadata", "aiperf"),
        ("first_token_ts", "llmservingsim"),
    ):
        if mark in keys:
            return format
    if "request_throughput" in keys:  # a vLLM benchmark saved without its lists
        return "vllm_bench"
    if whole is not None and (not keys or len(text.strip().splitlines()) > 1):
        raise UserError(
            f"{name} is one JSON document and none that is known here: give per-request timings in one of "
            f"the formats {', '.join(FORMATS)}"
        )
    return "jsonl"


def _rows(name: str, text: str, format: str, run: int | None) -> tuple[list[Timing], list[str]]:
    if format in REPORTS:
        runs = _runs(name, text, format)
        if run is None and len(runs) != 1:
            raise UserError(
                f"{name} holds {len(runs)} runs: write run=0 for the first of them, or another number"
            )
        if run is not None and not 0 <= run < len(runs):
            raise UserError(f"{name} holds {len(runs)} runs: write run= from 0 to {len(runs) - 1}")
        number = run or 0
        remarks = [f"run {number} of {len(runs)} in the file"] if len(runs) > 1 else []
        rows, more = REPORTS[format](Place(name), runs[number])
        return rows, [*remarks, *more]
    if run is not None:
        raise UserError(f"{name} holds one run: leave run={run} out")
    if format in CSV:
        return CSV[format](name, text), []
    return LINES[format](_lines(name, text)), []


def _runs(name: str, text: str, format: str) -> list[Any]:
    """Return the report's runs: one or a list; ``--append-result`` writes one run per line."""
    whole = _document(text)
    if format == "guidellm":
        if whole is None:
            raise UserError(f"{name} is no JSON document: give the benchmarks.json that guidellm wrote")
        return list(reports.guidellm_runs(Place(name), whole))
    return [whole] if whole is not None else [value for _, value in _lines(name, text)]


def _document(text: str) -> Any:
    """Parse the whole text; None if it is not one JSON document."""
    try:
        return json_data(text)
    except ValueError:
        return None


def _lines(name: str, text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = Place(f"{name}, line {number}")
            try:
                yield place, json_data(line)
            except ValueError:
                place.refuse("it is no JSON", "write one object per line")
