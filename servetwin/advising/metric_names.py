"""Prometheus' names of what serving engines and Kubernetes tell, and which column of a record each one is.

vLLM: vllm/v1/metrics/loggers.py (names of 0.19, and older ones that dashboards still have). SGLang:
python/sglang/srt/metrics/collector.py. Kubernetes: kube-state-metrics' deployment and statefulset
metrics. Gateway API inference extension: pkg/epp/metrics. ``servetwin:`` are those of ``realexec run``.
"""

from typing import Final, Literal, NamedTuple

from servetwin.advising.columns import (
    FINISHED,
    HITS,
    KV_USE,
    MEAN_OUTPUT,
    MEAN_PROMPT,
    OUTPUT,
    PROMPT,
    READY,
    REPLICAS,
    REQUESTS,
    RUNNING,
    TPOT,
    TTFT,
    WAITING,
)

Kind = Literal[
    "sum",  # a level of each instance, added
    "mean",  # a share of each instance, averaged
    "rate",  # a counter of each instance, whose growth per second is added
    "histogram",  # of latencies in seconds
    "lengths",  # a histogram of lengths in tokens, of which the mean is taken
]
FOUND: Final = "prefix_found_per_s"
LOOKED_UP: Final = "prefix_looked_up_per_s"


class Metric(NamedTuple):
    """Which column a metric is, and how the series of several instances make one."""

    column: str
    kind: Kind


METRICS: Final = {
    "vllm:num_requests_waiting": Metric(WAITING, "sum"),
    "vllm:num_requests_running": Metric(RUNNING, "sum"),
    "vllm:kv_cache_usage_perc": Metric(KV_USE, "mean"),
    "vllm:gpu_cache_usage_perc": Metric(KV_USE, "mean"),
    "vllm:prompt_tokens_total": Metric(PROMPT, "rate"),
    "vllm:generation_tokens_total": Metric(OUTPUT, "rate"),
    "vllm:request_success_total": Metric(FINISHED, "rate"),
    "vllm:prefix_cache_hits_total": Metric(FOUND, "rate"),
    "vllm:prefix_cache_queries_total": Metric(LOOKED_UP, "rate"),
    "vllm:time_to_first_token_seconds": Metric(TTFT, "histogram"),
    "vllm:request_time_per_output_token_seconds": Metric(TPOT, "histogram"),
    "vllm:inter_token_latency_seconds": Metric(TPOT, "histogram"),
    "vllm:time_per_output_token_seconds": Metric(TPOT, "histogram"),
    "vllm:request_prompt_tokens": Metric(MEAN_PROMPT, "lengths"),
    "vllm:request_generation_tokens": Metric(MEAN_OUTPUT, "lengths"),
    "sglang:num_queue_reqs": Metric(WAITING, "sum"),
    "sglang:num_running_reqs": Metric(RUNNING, "sum"),
    "sglang:token_usage": Metric(KV_USE, "mean"),
    "sglang:cache_hit_rate": Metric(HITS, "mean"),
    "sglang:prompt_tokens_total": Metric(PROMPT, "rate"),
    "sglang:generation_tokens_total": Metric(OUTPUT, "rate"),
    "sglang:num_requests_total": Metric(FINISHED, "rate"),
    "sglang:time_to_first_token_seconds": Metric(TTFT, "histogram"),
    "sglang:inter_token_latency_seconds": Metric(TPOT, "histogram"),
    "sglang:time_per_output_token_seconds": Metric(TPOT, "histogram"),
    "kube_deployment_status_replicas": Metric(REPLICAS, "sum"),
    "kube_deployment_status_replicas_ready": Metric(READY, "sum"),
    "kube_deployment_status_replicas_available": Metric(READY, "sum"),
    "kube_statefulset_status_replicas": Metric(REPLICAS, "sum"),
    "kube_statefulset_status_replicas_ready": Metric(READY, "sum"),
    "kube_horizontalpodautoscaler_status_current_replicas": Metric(REPLICAS, "sum"),
    "inference_model_request_total": Metric(REQUESTS, "rate"),
    "inference_objective_request_total": Metric(REQUESTS, "rate"),
    "servetwin:arrived_total": Metric(REQUESTS, "rate"),
}
"""In order of preference where a record has several of one column."""
ENGINES: Final = ("vllm", "sglang")
"""What the names of an engine's own metrics begin with, and ``engine.software``."""
PER_INSTANCE: Final = (WAITING, RUNNING, KV_USE)
"""Columns whose series are of one instance each."""
PARTS: Final = ("_bucket", "_sum", "_count")
"""Endings of the series of a histogram."""


def metric_of(name: str) -> tuple[str, Metric, str] | None:
    """Return (its name, the metric, the ending of a histogram's part) of a series; None: an unknown one."""
    if name in METRICS:
        return name, METRICS[name], ""
    for part in PARTS:
        base = name.removesuffix(part)
        if base != name and base in METRICS and METRICS[base].kind in ("histogram", "lengths"):
            return base, METRICS[base], part
    return None
