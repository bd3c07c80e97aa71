"""Reads JSON lines of timings, one request a line: ServeTwin's own keys, LLMServingSim's bench, AIPerf."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from servetwin.compare.measured import MS_PER_S, NS_PER_MS, NS_PER_S, UNKNOWN, RequestTiming
from servetwin.compare.tables import OWN_COLUMNS, own_timing
from servetwin.compare.values import FilePlace

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
        place=place.where,
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
        place=place.where,
    )


def _number_in(place: FilePlace, value: Any) -> int | None:
    """Return a request id as a number if it is one, written as number or text; None otherwise."""
    plain = isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and value.isascii())
    return place.whole(value, "request_id") if plain else None
