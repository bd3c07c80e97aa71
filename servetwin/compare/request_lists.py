"""Reads JSON documents that are a list of requests: inference-perf, LLMPerf, GenAI-Perf, genai-bench."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from servetwin.compare.measured import MS_PER_S, NS_PER_MS, NS_PER_S, UNKNOWN, RequestTiming
from servetwin.compare.values import FilePlace
from serving.record.json_text import json_data

Found = tuple[list[RequestTiming], list[str]]
# inference_perf/reportgen (kubernetes-sigs/inference-perf), per_request_lifecycle_metrics.json; times in s.
INFERENCE_PERF_KEYS: Final = (
    "start_time", "end_time", "scheduled_time", "request", "response", "request_data", "response_data",
    "info", "error", "stage_id", "session_id", "ttft_slo_sec", "tpot_slo_sec",
)  # fmt: skip
INFERENCE_PERF_INFO: Final = (
    "input_tokens", "output_tokens", "output_token_times", "request_metrics", "response_metrics",
    "extra_info", "lora_adapter", "labels",
)  # fmt: skip
# llmperf/common_metrics.py (ray-project/llmperf); times in s.
LLMPERF_KEYS: Final = (
    "error_code", "error_msg", "inter_token_latency_s", "ttft_s", "end_to_end_latency_s",
    "request_output_throughput_token_per_s", "number_total_tokens", "number_output_tokens",
    "number_input_tokens",
)  # fmt: skip
# genai_bench/metrics/metrics.py and aggregated_metrics_collector.py (sgl-project/genai-bench).
GENAI_BENCH_KEYS: Final = (
    "error_code", "error_message", "num_input_tokens", "num_output_tokens", "total_tokens", "ttft", "tpot",
    "e2e_latency", "output_latency", "output_inference_speed", "input_throughput", "output_throughput",
)  # fmt: skip
_UNITS_MS: Final = {"s": MS_PER_S, "ms": 1.0}
_UNORDERED: Final = (
    "the file has no arrival times, and requests as they finished: their order is that of sending only if "
    "one request was in flight at a time"
)
# The profile export that GenAI-Perf has from Perf Analyzer; times in ns.
GENAI_PERF_KEYS: Final = ("timestamp", "request_inputs", "response_timestamps", "response_outputs")
_DATA: Final = "data:"
_END: Final = "[DONE]"


def inference_perf(place: FilePlace, report: Any) -> Found:
    """Read ``per_request_lifecycle_metrics.json``."""
    rows = []
    for here, row in _requests(place, report, INFERENCE_PERF_KEYS):
        info = here.mapping(row.get("info") or {}, "info")
        here.only(info, INFERENCE_PERF_INFO, "key")
        rows.append(_of_inference_perf(here, row, info))
    return rows, []


def _of_inference_perf(place: FilePlace, row: Mapping[str, Any], info: Mapping[str, Any]) -> RequestTiming:
    """Read a request. Newer versions have counts and times in ``request_metrics``, ``response_metrics``."""
    asked = place.mapping(
        place.mapping(info.get("request_metrics") or {}, "request_metrics").get("text") or {}, "text"
    )
    answered = place.mapping(info.get("response_metrics") or {}, "response_metrics")
    times = info.get("output_token_times", answered.get("output_token_times"))
    tokens = place.whole(info.get("output_tokens", answered.get("output_tokens")), "output_tokens")
    start_s = place.number(row.get("start_time"), "start_time")
    seen_s = place.numbers(times, "output_token_times")
    return RequestTiming(
        arrival_s=start_s,
        prompt_tokens=place.whole(info.get("input_tokens", asked.get("input_tokens")), "input_tokens"),
        output_tokens=tokens,
        ttft_ms=(seen_s[0] - start_s) * MS_PER_S if seen_s else UNKNOWN,
        e2e_ms=(place.time(row.get("end_time"), "end_time") - start_s) * MS_PER_S,
        gaps_ms=_gaps_ms(seen_s, tokens, MS_PER_S),
        failed=row.get("error") is not None,
    )


def _gaps_ms(moments: Sequence[float], tokens: int | None, unit_ms: float) -> tuple[float, ...]:
    """Return the gaps between tokens or chunks; none if an event of the stream is not always one of these.

    Some versions note the time of every event, of which there are more than tokens.
    """
    if tokens is None or len(moments) - 1 > tokens:
        return ()
    return tuple((later - earlier) * unit_ms for earlier, later in pairwise(moments))


def llmperf(place: FilePlace, report: Any) -> Found:
    """Read ``*_individual_responses.json``; ``inter_token_latency_s`` counts the first token: unused."""
    rows = []
    for here, row in _requests(place, report, LLMPERF_KEYS):
        rows.append(
            RequestTiming(
                prompt_tokens=here.whole(row.get("number_input_tokens"), "number_input_tokens"),
                output_tokens=here.whole(row.get("number_output_tokens"), "number_output_tokens"),
                ttft_ms=here.time(row.get("ttft_s"), "ttft_s") * MS_PER_S,
                e2e_ms=here.time(row.get("end_to_end_latency_s"), "end_to_end_latency_s") * MS_PER_S,
                failed=row.get("error_code") is not None,
            )
        )
    return rows, [_UNORDERED]


def genai_bench(place: FilePlace, report: Any) -> Found:
    """Read the JSON of one run of ``genai-bench benchmark``."""
    report = place.mapping(report, "the report")
    unit_ms = _UNITS_MS.get(str(report.get("_time_unit", "s")))
    if unit_ms is None:
        place.refuse("_time_unit is not s or ms", "give the file as it was written")
    rows = [
        RequestTiming(
            prompt_tokens=here.whole(row.get("num_input_tokens"), "num_input_tokens"),
            output_tokens=here.whole(row.get("num_output_tokens"), "num_output_tokens"),
            ttft_ms=here.time(row.get("ttft"), "ttft") * unit_ms,
            tpot_ms=here.time(row.get("tpot"), "tpot") * unit_ms,
            e2e_ms=here.time(row.get("e2e_latency"), "e2e_latency") * unit_ms,
            failed=row.get("error_code") is not None,
        )
        for here, row in _requests(place, report.get("individual_request_metrics"), GENAI_BENCH_KEYS)
    ]
    return rows, [_UNORDERED]


def _requests(
    place: FilePlace, report: Any, known: tuple[str, ...]
) -> Iterator[tuple[FilePlace, Mapping[str, Any]]]:
    """Yield each request of a list with its position."""
    if not isinstance(report, list):
        place.refuse("it is no list of requests", "give the file as it was written")
    for at, value in enumerate(report):
        here = place.at(f"request {at}")
        row = here.mapping(value, "a request")
        here.only(row, known, "key")
        yield here, row


def genai_perf_runs(place: FilePlace, report: Any) -> Sequence[Any]:
    """Return the experiments in a ``profile_export.json``."""
    runs = place.mapping(report, "the report").get("experiments")
    if not isinstance(runs, list):
        place.refuse("experiments is no list", "give the profile_export.json that genai-perf wrote")
    return runs


def genai_perf(place: FilePlace, run: Any) -> Found:
    """Read one experiment. Token counts are those that the server reports in its answer, if it does."""
    requests = place.mapping(run, "the experiment").get("requests")
    return [_of_genai_perf(here, row) for here, row in _requests(place, requests, GENAI_PERF_KEYS)], []


def _of_genai_perf(place: FilePlace, row: Mapping[str, Any]) -> RequestTiming:
    """Read a request. An answer's events without text, such as the first one of a chat, are no tokens."""
    start_ns = _moment_ns(place, row.get("timestamp"), "timestamp")
    stamps = row.get("response_timestamps") or []
    outputs = row.get("response_outputs") or []
    if not isinstance(stamps, list) or not isinstance(outputs, list):
        place.refuse("response_timestamps is no list", "give the profile_export.json that genai-perf wrote")
    events = [_event(output) for output in outputs]
    at_ns = [_moment_ns(place, stamp, "response_timestamps") for stamp in stamps]
    if len(events) == len(at_ns) and any(text for text, _ in events):
        at_ns = [moment for moment, (text, _) in zip(at_ns, events, strict=True) if text]
    usage = next((found for _, found in reversed(events) if found), dict[str, Any]())
    tokens = place.whole(usage.get("completion_tokens"), "completion_tokens")
    return RequestTiming(
        arrival_s=start_ns / NS_PER_S,
        prompt_tokens=place.whole(usage.get("prompt_tokens"), "prompt_tokens"),
        output_tokens=tokens,
        ttft_ms=(at_ns[0] - start_ns) / NS_PER_MS if at_ns else UNKNOWN,
        e2e_ms=(at_ns[-1] - start_ns) / NS_PER_MS if at_ns else UNKNOWN,
        gaps_ms=_gaps_ms(at_ns, tokens, 1 / NS_PER_MS),
        failed=not at_ns,
    )


def _moment_ns(place: FilePlace, value: Any, key: str) -> float:
    """Return a moment, which has more digits than a float holds, as it is written."""
    number = place.number(value, key)
    return value if type(value) is int else number


def _event(output: Any) -> tuple[bool, Mapping[str, Any]]:
    """Return whether an event of the answer has text, and the usage that it reports."""
    text = output.get("response") if isinstance(output, dict) else output
    if not isinstance(text, str):
        return False, {}
    try:
        event = json_data(text.strip().removeprefix(_DATA))
    except ValueError:
        return _END not in text and bool(text.strip()), {}
    if not isinstance(event, dict):
        return True, {}
    usage = event.get("usage")
    return _has_text(event.get("choices")), usage if isinstance(usage, dict) else {}


def _has_text(choices: Any) -> bool:
    if not isinstance(choices, list):
        return True
    parts = [choice for choice in choices if isinstance(choice, dict)]
    deltas = [part.get("delta") or part.get("message") or part for part in parts]
    return any(
        isinstance(delta, dict)
        and (delta.get("content") or delta.get("text") or delta.get("reasoning_content"))
        for delta in deltas
    )
