"""Reads whole reports as JSON: vLLM's serving benchmark and GuideLLM."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from experiments.compare.measured import MS_PER_S, Timing
from experiments.compare.values import Place

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
_STATUSES: Final = ("successful", "incomplete", "errored", "total")


def vllm_bench(place: Place, report: Any) -> list[Timing]:
    """Read one run of ``vllm bench serve``; a request with an error has failed.

    Unknown lists are refused; other keys are settings and statistics of the whole run.
    """
    report = place.mapping(report, "the report")
    lists = {key: value for key, value in report.items() if isinstance(value, list)}
    place.only(lists, (*BENCH_LISTS, *_OTHER_LISTS), "list")
    if "ttfts" not in lists or not ("latencies" in lists or "itls" in lists):
        place.refuse(
            "it has no lists ttfts and itls", "run vllm bench serve with --save-result --save-detailed"
        )
    count = len(lists["ttfts"])
    for key in BENCH_LISTS:
        if key in lists and len(lists[key]) != count:
            place.refuse(
                f"{key} has {len(lists[key])} entries and ttfts {count}", "give the file as it was written"
            )
    columns = {key: lists.get(key) or [None] * count for key in BENCH_LISTS}
    return [_of_bench(place, {key: columns[key][at] for key in BENCH_LISTS}) for at in range(count)]


def _of_bench(place: Place, row: Mapping[str, Any]) -> Timing:
    gaps = place.numbers(row["itls"], "itls")
    ttft, latency = place.at_least_0(row["ttfts"], "ttfts"), place.at_least_0(row["latencies"], "latencies")
    if row["latencies"] is None:
        latency = ttft + sum(gaps)
    failed = bool(row["errors"])
    return Timing(
        None,
        place.number(row["start_times"], "start_times"),
        place.whole(row["input_lens"], "input_lens"),
        place.whole(row["output_lens"], "output_lens"),
        ttft * MS_PER_S,
        e2e_ms=latency * MS_PER_S,
        gaps_ms=() if failed else tuple(gap * MS_PER_S for gap in gaps),
        failed=failed,
    )


def guidellm_runs(place: Place, report: Any) -> Sequence[Any]:
    """Return the benchmarks in a ``benchmarks.json``."""
    runs = place.mapping(report, "the report").get("benchmarks")
    if not isinstance(runs, list):
        place.refuse("benchmarks is no list", "give the benchmarks.json that guidellm wrote")
    return runs


def guidellm(place: Place, run: Any) -> list[Timing]:
    """Read one benchmark of the report; ``inter_token_latency_ms`` is the mean gap after the first token."""
    requests = place.mapping(place.mapping(run, "the benchmark").get("requests"), "requests")
    place.only(requests, _STATUSES, "status")
    rows = []
    for status in _STATUSES[:3]:
        for value in requests.get(status) or ():
            row = place.mapping(value, "a request")
            place.only(row, GUIDELLM_KEYS, "key")
            rows.append(_of_guidellm(place, row, status != "successful"))
    return rows


def _of_guidellm(place: Place, row: Mapping[str, Any], failed: bool) -> Timing:
    start = row.get("request_start_time", row.get("start_time"))
    return Timing(
        None,
        place.number(start, "request_start_time"),
        place.whole(row.get("prompt_tokens"), "prompt_tokens"),
        place.whole(row.get("output_tokens"), "output_tokens"),
        place.at_least_0(row.get("time_to_first_token_ms"), "time_to_first_token_ms"),
        place.at_least_0(row.get("inter_token_latency_ms"), "inter_token_latency_ms"),
        place.at_least_0(row.get("request_latency"), "request_latency") * MS_PER_S,
        failed=failed,
    )
