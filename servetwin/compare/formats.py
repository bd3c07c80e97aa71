"""Detects the format of a measured file and reads it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import read_limited
from servetwin.compare import reports, tables
from servetwin.compare.collected import collected
from servetwin.compare.measured import MS_PER_S, NS_PER_MS, NS_PER_S, UNKNOWN, MeasuredRun, RequestTiming
from servetwin.compare.own_result import REQUESTS, own_result
from servetwin.compare.tables import OWN_COLUMNS, own_timing
from servetwin.compare.values import FilePlace
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

# Reads JSON lines of timings, one request a line: ServeTwin's own keys, LLMServingSim's bench, AIPerf.

Line = tuple[FilePlace, Any]
OWN_KEYS: Final = (*OWN_COLUMNS, "itl_ms")
# bench/core/recorder.py, write_requests: vLLM's timestamps in seconds; arrival_time is on another clock.
BENCH_KEYS: Final = (
    "request_id", "input_toks", "output_toks", "arrival_time", "queued_ts", "scheduled_ts",
    "first_token_ts", "last_token_ts",
)  # fmt: skip
# docs/tutorials/working-with-profile-exports.md of ai-dynamo/aiperf.
AIPERF_KEYS: Final = ("metadata", "metrics", "error", "trace_data")
_PHASE: Final = "profiling"


def own_lines(lines: Iterable[Line]) -> list[RequestTiming]:
    """Read the CSV's columns as keys; ``itl_ms`` is the list of gaps between tokens."""
    rows = []
    for place, value in lines:
        row = dict(place.mapping(value, "the line"))
        place.only(row, OWN_KEYS, "key")
        gaps = tuple(place.numbers(row.pop("itl_ms", None), "itl_ms"))
        rows.append(own_timing(place, row, gaps))
    return rows


def llmservingsim_bench(lines: Iterable[Line]) -> list[RequestTiming]:
    """Read ``requests.jsonl`` of a vLLM run that LLMServingSim's bench recorded."""
    rows = []
    for place, value in lines:
        row = place.mapping(value, "the line")
        place.only(row, BENCH_KEYS, "key")
        at = {key: _stamp(place, row, key) for key in BENCH_KEYS[4:]}
        rows.append(_of_bench(place, row, at))
    return rows


def _stamp(place: FilePlace, row: Mapping[str, Any], key: str) -> float:
    """Return vLLM's timestamp; it is 0 until the moment comes (vllm/v1/metrics/stats.py)."""
    at = place.time(row.get(key), key)
    return at if at > 0 else UNKNOWN


def _of_bench(place: FilePlace, row: Mapping[str, Any], at: Mapping[str, float]) -> RequestTiming:
    """Read a request; one that has no last token has failed."""

    def since_queued(key: str) -> float:
        return (at[key] - at["queued_ts"]) * MS_PER_S

    return RequestTiming(
        request=_number_in(place, row.get("request_id")),
        arrival_s=place.number(row.get("arrival_time"), "arrival_time"),
        prompt_tokens=place.whole(row.get("input_toks"), "input_toks"),
        output_tokens=place.whole(row.get("output_toks"), "output_toks"),
        ttft_ms=since_queued("first_token_ts"),
        e2e_ms=since_queued("last_token_ts"),
        queue_ms=since_queued("scheduled_ts"),
        failed=at["last_token_ts"] != at["last_token_ts"],
    )


def aiperf(lines: Iterable[Line]) -> list[RequestTiming]:
    """Read AIPerf's ``profile_export.jsonl`` without warm-up requests. Requests have no workload numbers."""
    rows = []
    for place, value in lines:
        row = place.mapping(value, "the line")
        place.only(row, AIPERF_KEYS, "key")
        metadata = place.mapping(row.get("metadata"), "metadata")
        if metadata.get("benchmark_phase", _PHASE) == _PHASE:
            rows.append(_of_aiperf(place, metadata, row))
    return rows


def _of_aiperf(place: FilePlace, metadata: Any, row: Any) -> RequestTiming:
    metrics = place.mapping(row.get("metrics") or {}, "metrics")
    failed = row.get("error") is not None or bool(metadata.get("was_cancelled"))

    def metric(name: str, unit: str) -> Any:
        entry = metrics.get(name)
        if entry is None:
            return None
        entry = place.mapping(entry, name)
        if entry.get("unit") != unit:
            place.refuse(f"{name} is in '{entry.get('unit')}'", f"export it in {unit}")
        return entry.get("value")

    start_ns, end_ns = (
        place.number(metadata.get(key), key) for key in ("request_start_ns", "request_end_ns")
    )
    return RequestTiming(
        request=None,
        arrival_s=start_ns / NS_PER_S,
        prompt_tokens=place.whole(metric("input_sequence_length", "tokens"), "input_sequence_length"),
        output_tokens=place.whole(metric("output_sequence_length", "tokens"), "output_sequence_length"),
        ttft_ms=place.time(metric("time_to_first_token", "ms"), "time_to_first_token"),
        tpot_ms=place.time(metric("inter_token_latency", "ms"), "inter_token_latency"),
        e2e_ms=place.time(metric("request_latency", "ms"), "request_latency"),
        gaps_ms=tuple(place.numbers(metric("inter_chunk_latency", "ms"), "inter_chunk_latency")),
        failed=failed,
        span_ms=(end_ns - start_ns) / NS_PER_MS,
    )


def _number_in(place: FilePlace, value: Any) -> int | None:
    """Return a request id as a number if it is one, written as number or text; None otherwise."""
    plain = isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and value.isascii())
    return place.whole(value, "request_id") if plain else None


OWN_RESULT: Final = "servetwin"
MOST_BYTES: Final = 512 << 20  # a run of some 100,000 requests with the time of every token
CSV: Final[dict[str, Callable[[str, str], list[RequestTiming]]]] = {
    "csv": tables.own_csv,
    "llmservingsim_csv": tables.llmservingsim_csv,
}
LINES: Final[dict[str, Callable[[Iterator[Line]], list[RequestTiming]]]] = {
    "jsonl": own_lines,
    "llmservingsim": llmservingsim_bench,
    "aiperf": aiperf,
}
REPORTS: Final[dict[str, Callable[[FilePlace, Any], tuple[list[RequestTiming], list[str]]]]] = {
    "vllm_bench": reports.vllm_bench,
    "guidellm": reports.guidellm,
}
FORMATS: Final = (*CSV, *LINES, *REPORTS, OWN_RESULT)


def read_measured(path: Path, format: str | None = None, run: int | None = None) -> MeasuredRun:
    """Read the timings in ``path``. ``format``: its format; if it is None, the format is detected.

    ``run``: the index of the run in the file.
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
    name = format or _format_of(str(path), text)
    rows, remarks = _rows(str(path), text, name, run)
    if not rows:
        raise UserError(f"{path} holds no requests: give a file with one row per request")
    rows = [replace(row, gaps_ms=()) if row.failed else row for row in rows]
    return collected(path, name, sha256(content).hexdigest(), rows, remarks)


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


def _rows(name: str, text: str, format: str, run: int | None) -> tuple[list[RequestTiming], list[str]]:
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
        rows, more = REPORTS[format](FilePlace(name), runs[number])
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
        return list(reports.guidellm_runs(FilePlace(name), whole))
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
            place = FilePlace(f"{name}, line {number}")
            try:
                yield place, json_data(line)
            except ValueError:
                place.refuse("it is no JSON", "write one object per line")
