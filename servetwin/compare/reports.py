"""Reads whole reports: the serving benchmarks of vLLM and SGLang, and GuideLLM."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from servetwin.compare.measured import MS_PER_S, RequestTiming
from servetwin.compare.values import FilePlace

# vllm/benchmarks/serve.py (--save-result --save-detailed): lists with one entry per request, in sending
# order; times in seconds.
BENCH_LISTS: Final = (
    "input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times",
    "generated_texts", "errors",
)  # fmt: skip
_OTHER_LISTS: Final = ("rps_change_events", "spec_decode_per_position_acceptance_rates")
# src/guidellm/schemas/base/request_stats.py and its computed fields; before 0.4 start_time and end_time.
GUIDELLM_KEYS: Final = (
    "type_", "request_id", "response_id", "request_type", "request_args", "scheduler_info", "prompt",
    "output", "reasoning_output", "tool_calls", "info", "input_metrics", "output_metrics",
    "request_start_time", "request_end_time", "request_latency", "request_dispatch_delay",
    "request_scheduled_latency", "prompt_tokens", "cached_tokens", "output_tokens", "total_tokens",
    "time_to_first_token_ms", "time_to_last_round_trip_ms", "avg_round_trip_time_ms",
    "time_per_output_token_ms", "inter_token_latency_ms", "tokens_per_second",
    "output_tokens_per_second", "time_to_first_output_token_ms", "iter_tokens_per_iteration",
    "output_tokens_per_iteration", "start_time", "end_time", "first_token_time", "last_token_time",
    "iterations",
)  # fmt: skip
_VLLM: Final = ("vllm bench serve", "run it with --save-result --save-detailed")
_SGLANG: Final = ("sglang.bench_serving", "run it with --output-file FILE --output-details")
_STATUSES: Final = ("successful", "incomplete", "errored", "total")


def vllm_bench(place: FilePlace, report: Any) -> tuple[list[RequestTiming], list[str]]:
    """Read one run of ``vllm bench serve``; a request with an error has failed."""
    return _bench(place, report, *_VLLM)


def sglang(place: FilePlace, report: Any) -> tuple[list[RequestTiming], list[str]]:
    """Read one run of ``sglang.bench_serving``, whose lists are those of vLLM's benchmark."""
    return _bench(place, report, *_SGLANG)


def _bench(
    place: FilePlace, report: Any, tool: str, with_lists: str
) -> tuple[list[RequestTiming], list[str]]:
    """Read the lists. Unknown lists are noted; other keys are settings and statistics of the whole run."""
    report = place.mapping(report, "the report")
    lists = {key: value for key, value in report.items() if isinstance(value, list)}
    place.only(lists, (*BENCH_LISTS, *_OTHER_LISTS), "list")
    if "ttfts" not in lists or not ("latencies" in lists or "itls" in lists):
        place.refuse(f"it is a result of {tool} without single requests (lists such as ttfts)", with_lists)
    count = len(lists["ttfts"])
    for key in BENCH_LISTS:
        if key in lists and len(lists[key]) != count:
            place.refuse(
                f"{key} has {len(lists[key])} entries and ttfts {count}", "give the file as it was written"
            )
    columns = {key: lists.get(key) or [None] * count for key in BENCH_LISTS}
    rows = [
        _of_bench(place.at(f"request {at}"), {key: columns[key][at] for key in BENCH_LISTS})
        for at in range(count)
    ]
    return rows, list(_client_queue(place, columns["queue_times"]))


def _client_queue(place: FilePlace, values: Sequence[Any]) -> Iterator[str]:
    """Yield a remark that queue_times are unused: they are waits in the client, before TTFT begins.

    They are ``client_queue_time`` in vllm/benchmarks/lib/endpoint_request_func.py.
    """
    waits_s = [place.time(value, "queue_times") for value in values]
    waited = [wait_s for wait_s in waits_s if 0 < wait_s < math.inf]
    if waited:
        yield (
            f"queue_times are not used: {len(waited):,} of {len(waits_s):,} requests waited in the client "
            f"for max_concurrency, {math.fsum(waited) / len(waited) * MS_PER_S:,.0f} ms in the mean, before "
            "they were sent; TTFT and E2E count from then, so simulate the sent requests (start_times)"
        )


def _of_bench(place: FilePlace, row: Mapping[str, Any]) -> RequestTiming:
    gaps, failed = place.numbers(row["itls"], "itls"), bool(row["errors"])
    ttft, latency = place.time(row["ttfts"], "ttfts"), place.time(row["latencies"], "latencies")
    tokens = place.whole(row["output_lens"], "output_lens")
    if not 0 < latency < math.inf and _ends_with_gaps(ttft, gaps, tokens):
        latency = ttft + math.fsum(gaps)
    return RequestTiming(
        request=None,
        arrival_s=place.number(row["start_times"], "start_times"),
        prompt_tokens=place.whole(row["input_lens"], "input_lens"),
        output_tokens=tokens,
        ttft_ms=ttft * MS_PER_S,
        e2e_ms=latency * MS_PER_S,
        gaps_ms=() if failed else tuple(gap * MS_PER_S for gap in gaps),
        failed=failed,
    )


def _ends_with_gaps(ttft: float, gaps: Sequence[float], tokens: int | None) -> bool:
    """Return whether TTFT and the gaps, of tokens or chunks, reach to the last token."""
    known = ttft > 0 and all(0 <= gap < math.inf for gap in gaps)
    return known and (len(gaps) > 0 or tokens == 1)


def guidellm_runs(place: FilePlace, report: Any) -> Sequence[Any]:
    """Return the benchmarks in a ``benchmarks.json``."""
    runs = place.mapping(report, "the report").get("benchmarks")
    if not isinstance(runs, list):
        place.refuse("benchmarks is no list", "give the benchmarks.json that guidellm wrote")
    return runs


def guidellm(place: FilePlace, run: Any) -> tuple[list[RequestTiming], list[str]]:
    """Read one benchmark of the report; ``inter_token_latency_ms`` is the mean gap after the first token."""
    requests = place.mapping(place.mapping(run, "the benchmark").get("requests"), "requests")
    place.only(requests, _STATUSES, "status")
    rows = []
    for status in _STATUSES[:3]:
        values = requests.get(status) or []
        if not isinstance(values, list):
            place.refuse(f"requests.{status} is no list", "give the benchmarks.json that guidellm wrote")
        for at, value in enumerate(values):
            here = place.at(f"{status}[{at}]")
            row = here.mapping(value, "a request")
            here.only(row, GUIDELLM_KEYS, "key")
            rows.append(_of_guidellm(here, row, status != "successful"))
    return rows, []


def _of_guidellm(place: FilePlace, row: Mapping[str, Any], failed: bool) -> RequestTiming:
    start_s, end_s = (
        place.number(row.get(f"request_{key}", row.get(key)), f"request_{key}")
        for key in ("start_time", "end_time")
    )
    return RequestTiming(
        request=None,
        arrival_s=start_s,
        prompt_tokens=place.whole(row.get("prompt_tokens"), "prompt_tokens"),
        output_tokens=place.whole(row.get("output_tokens"), "output_tokens"),
        ttft_ms=place.time(row.get("time_to_first_token_ms"), "time_to_first_token_ms"),
        tpot_ms=place.time(row.get("inter_token_latency_ms"), "inter_token_latency_ms"),
        e2e_ms=place.time(row.get("request_latency"), "request_latency") * MS_PER_S,
        failed=failed,
        span_ms=(end_s - start_s) * MS_PER_S,
        place=place.where,
    )
