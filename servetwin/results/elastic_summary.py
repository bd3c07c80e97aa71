"""Scaling decisions, host memory in use and the cost of deciding, for summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.results.instance_use import instance_use
from serving.controller import Controller
from serving.elastic.elastic import Elastic
from serving.protocols.scaling import OBSTACLES, ScaleEvent
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S
from simcore.sim_report import SimReport

NS_PER_MS = 1e6


def elastic_summary(
    controller: Controller, placed: Sequence[Replica], summary: Mapping[str, Any], report: SimReport
) -> dict[str, Any]:
    """``scale_events`` in order, each with its reason; bytes of host memory over time; cache look-ups.

    ``decisions``: how often the load monitor ran, and the CPU time of one run (every 32nd is measured). GPU
    time and instances include every instance that was added or removed. A static system has no events.
    """
    elastic = controller.elastic
    if not isinstance(elastic, Elastic):
        return {"scale_events": [], "decisions": {"count": 0, "cpu_ms_p99": None}}
    copies, span_s = elastic.deployment.checked_copies, summary["duration_s"]
    end_ns = round(span_s * NS_PER_S)
    copies.settle(end_ns)
    gpus_of = {model: len(prototype.gpus) for model, prototype in elastic.prototypes.items()}
    use = instance_use(placed, gpus_of, elastic.deployment.log.events, span_s)
    busy_s = sum(summary["replica_busy_share"]) * span_s
    return {
        "gpu_seconds": use.gpu_seconds,
        "gpu_busy_share": busy_s / use.instance_seconds if use.instance_seconds else None,
        "instances": use.summary(),
        "scale_events": [event_row(event) for event in elastic.deployment.log.events],
        "shortages": shortages(elastic.deployment.log.events),
        "host_cache_bytes": {
            "mean": copies.usage.mean(end_ns),
            "max": copies.usage.largest,
        },
        "cache": {"hits": copies.caches.hits, "misses": copies.caches.misses},
        "decisions": {"count": report.looks, "cpu_ms_p99": _p99_ms(report.decisions_ns)},
        **live_summary(controller),
    }


def live_summary(controller: Controller) -> dict[str, Any]:
    """Summarize the work of instances during their loads, all models together; empty if none could work."""
    counts = [service.live.counts for service in controller.services.values() if service.live.enabled]
    if not counts:
        return {}
    seen = {layers for count in counts for layers in count.layer_counts}
    return {
        "live": {
            "passes": sum(count.passes for count in counts),
            "requests": sum(count.requests for count in counts),
            "layer_counts_seen": sorted(seen),
            "plans_used": sum(count.plans_used for count in counts),
            "plans_refused": sum(count.plans_refused for count in counts),
            "plans_late": sum(count.plans_late for count in counts),
        }
    }


def event_row(event: ScaleEvent) -> dict[str, Any]:
    """Return a scale event as plain data.

    ``replica`` is null for an event without a replica; only a shortage has an ``obstacle``.
    """
    obstacle = {"obstacle": event.obstacle} if event.obstacle else {}
    return {
        "t_s": event.now_ns / NS_PER_S,
        "act": event.act,
        "model": event.model,
        "role": event.role,
        "replica": event.replica if event.replica >= 0 else None,
        **obstacle,
        "reason": event.reason,
    }


def shortages(history: Sequence[ScaleEvent]) -> dict[str, int]:
    """Count wanted instances that could not be started, by obstacle."""
    obstacles = Counter(event.obstacle for event in history if event.obstacle)
    return {obstacle: obstacles[obstacle] for obstacle in OBSTACLES}


def _p99_ms(decisions_ns: Sequence[int]) -> float | None:
    """Return the 99th percentile; None if the monitor never ran. Measured, so it differs between runs."""
    if not len(decisions_ns):
        return None
    import numpy as np

    return float(np.quantile(np.asarray(decisions_ns), 0.99)) / NS_PER_MS
