"""The Kubernetes object of a scaler: an autoscaler (HPA) or KEDA's ScaledObject, on Prometheus' metrics.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/,
https://keda.sh/docs/latest/reference/scaledobject-spec/ and .../scalers/prometheus/, and
https://github.com/kubernetes-sigs/prometheus-adapter/blob/master/docs/externalmetrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.scaling.metrics import OF_LATENCY, is_latency
from servetwin.config.config import RunConfig

HPA, KEDA = "hpa", "keda"
PROMETHEUS: Final = "http://PROMETHEUS:9090"
_WINDOW_S: Final = 60.0  # over which rates are taken unless the run says otherwise
_SYNC_S, _TOLERANCE = 15.0, 0.1  # of kube-controller-manager, which no object sets
_MS_PER_S: Final = 1000
Object = dict[str, Any]

# The names of docs/reference/SCALERS.md by software; {of} selects the pods, {s} is the window.
_TOTALS: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "waiting": "sum(vllm:num_requests_waiting{of})",
        "running": "sum(vllm:num_requests_running{of})",
        "concurrency": "sum(vllm:num_requests_waiting{of}) + sum(vllm:num_requests_running{of})",
        "kv_use": "sum(vllm:kv_cache_usage_perc{of})",
        "prompt_tokens_per_s": "sum(rate(vllm:prompt_tokens_total{of}[{s}s]))",
        "output_tokens_per_s": "sum(rate(vllm:generation_tokens_total{of}[{s}s]))",
    },
    "sglang": {
        "waiting": "sum(sglang:num_queue_reqs{of})",
        "running": "sum(sglang:num_running_reqs{of})",
        "concurrency": "sum(sglang:num_queue_reqs{of}) + sum(sglang:num_running_reqs{of})",
        "kv_use": "sum(sglang:token_usage{of})",
        "prompt_tokens_per_s": "sum(rate(sglang:prompt_tokens_total{of}[{s}s]))",
        "output_tokens_per_s": "sum(rate(sglang:generation_tokens_total{of}[{s}s]))",
    },
}
_LATENCIES: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "ttft": "vllm:time_to_first_token_seconds",
        "tpot": "vllm:request_time_per_output_token_seconds",
    },
    "sglang": {"ttft": "sglang:time_to_first_token_seconds", "tpot": "sglang:time_per_output_token_seconds"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A Deployment that a scaler scales: name, role, and how many pods it has at least and at most."""

    name: str
    role: str
    least: int
    most: int


def why_no_object(config: RunConfig) -> str:
    """Return why the run's scaler has no object; "" if it has one, or if there is no scaler."""
    scaler, software = config.system.scaler, config.engine.software
    if scaler.name == "none":
        return ""
    if scaler.name not in (HPA, KEDA):
        return (
            f"system/scaler={scaler.name} is no object of Kubernetes or KEDA, so none is written; the pods "
            "are as many as at the start"
        )
    metric = scaler.params["metric"]
    if metric not in _TOTALS[software] and not is_latency(metric):
        return f"system.scaler.metric={metric} is no metric of {software}'s servers, so no object is written"
    return ""


def query_of(config: RunConfig, name: str) -> str:
    """Return the metric of all pods of a Deployment in PromQL: their sum, of a latency its value in ms."""
    metric, software = config.system.scaler.params["metric"], config.engine.software
    window = f"{config.system.signals.window_s or _WINDOW_S:g}"
    of = f'{{pod=~"{name}-[a-z0-9]+-[a-z0-9]+"}}'  # of this Deployment: its name, a hash, five letters
    if not is_latency(metric):
        return _TOTALS[software][metric].replace("{of}", of).replace("{s}", window)
    latency, share = OF_LATENCY[metric]
    series = _LATENCIES[software][latency]
    rates = [f"rate({series}_{part}{of}[{window}s])" for part in ("sum", "count", "bucket")]
    if share == "mean":
        return f"{_MS_PER_S} * sum({rates[0]}) / sum({rates[1]})"
    return f"{_MS_PER_S} * histogram_quantile({int(share[1:]) / 100:g}, sum by (le) ({rates[2]}))"


def scaler_object(config: RunConfig, one: Scaled) -> Object | None:
    """Return the object that scales a Deployment; None if the scaler has none, or not for this role."""
    scaler = config.system.scaler
    if scaler.name == "none" or why_no_object(config):
        return None
    if scaler.name == KEDA:
        return _scaled_object(config, one)
    return _autoscaler(config, one) if one.role in scaler.params["roles"] else None


def _autoscaler(config: RunConfig, one: Scaled) -> Object:
    params = config.system.scaler.params
    kind = "Value" if is_latency(params["metric"]) else "AverageValue"
    target = {"type": kind, kind[0].lower() + kind[1:]: _quantity(params["target"])}
    metric = {"metric": {"name": metric_name(config, one)}, "target": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": one.name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": one.name},
            "minReplicas": max(1, one.least),
            "maxReplicas": one.most,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": _behavior(params),
        },
    }


def _scaled_object(config: RunConfig, one: Scaled) -> Object:
    params = config.system.scaler.params
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": query_of(config, one.name),
            "threshold": f"{params['threshold']:g}",
            "activationThreshold": f"{params['activation_threshold']:g}",
        },
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": one.name},
        "spec": {
            "scaleTargetRef": {"name": one.name},
            "pollingInterval": math.ceil(params["polling_s"]),
            "cooldownPeriod": math.ceil(params["cooldown_s"]),
            "minReplicaCount": one.least,
            "maxReplicaCount": one.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(params)}},
            "triggers": [trigger],
        },
    }


def _behavior(params: Mapping[str, Any]) -> Object:
    """The policies of ``policies.scaling.hpa``: both in 15 s, the larger counts."""
    pods = {"type": "Pods", "value": int(params["up_pods"]), "periodSeconds": 15}
    percent = {"type": "Percent", "value": math.ceil(params["up_percent"]), "periodSeconds": 15}
    policies = [policy for policy in (pods, percent) if policy["value"]]
    return {
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies},
        "scaleDown": {"stabilizationWindowSeconds": math.ceil(params["stabilisation_s"])},
    }


def _quantity(number: float) -> str:
    """A quantity of Kubernetes: whole, or in thousandths."""
    return f"{number:.0f}" if float(number).is_integer() else f"{max(1, round(number * 1000))}m"


def metric_name(config: RunConfig, one: Scaled) -> str:
    """Return the name under which Prometheus' adapter gives an autoscaler its metric."""
    return f"{one.name}-{config.system.scaler.params['metric']}".replace("-", "_")


def adapter_rules(config: RunConfig, scaled: list[Scaled]) -> Object | None:
    """Return Prometheus' adapter's rules for the metrics of autoscalers; None if there is no autoscaler."""
    rules = []
    for one in scaled:
        found = scaler_object(config, one)
        if found is not None and found["kind"] == "HorizontalPodAutoscaler":
            query = query_of(config, one.name)
            series = query[query.index(f"{config.engine.software}:") :].partition("{")[0]
            rules.append(
                {
                    "seriesQuery": series,
                    "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
                    "name": {"as": metric_name(config, one)},
                    "metricsQuery": query,
                }
            )
    return {"rules": {"external": rules}} if rules else None


def scaler_remarks(config: RunConfig) -> list[str]:
    """Return what the objects leave to the reader."""
    scaler = config.system.scaler
    if why := why_no_object(config):
        return [why]
    if scaler.name == "none":
        return []
    lines = ["the queries count the pods of this name in every namespace that Prometheus scrapes"]
    if config.system.instances.drain_s is None:
        lines.append(
            "a pod that is stopped has Kubernetes' 30 s for its requests, and simulated ones all they need: "
            "system.instances.drain_s=SECONDS sets both"
        )
    if scaler.name == KEDA:
        lines.append(
            f"{PROMETHEUS} in the ScaledObject: the address of your Prometheus, which scrapes the pods"
        )
    else:
        lines.append(
            "prometheus_adapter.yaml: rules for the Helm chart of Prometheus' adapter, which gives the "
            "HorizontalPodAutoscaler its metric"
        )
    for key, usual in (("sync_s", _SYNC_S), ("tolerance", _TOLERANCE)):
        if scaler.params[key] != usual:
            value = f"system.scaler.{key}={scaler.params[key]:g}"
            lines.append(f"{value}: a flag of kube-controller-manager, not of the object")
    return lines
