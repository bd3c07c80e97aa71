"""Decisions of stage scaling and the resources in use, for summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.results.elastic_summary import event_row
from servetwin.results.instance_use import instance_use
from serving.controller import Controller
from serving.elastic.stage_control import StageControl
from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S
from simcore.sim_report import SimReport


def stage_scaling_summary(
    controller: Controller, placed: Sequence[Replica], summary: Mapping[str, Any], report: SimReport
) -> dict[str, Any]:
    """Count GPUs with at least one replica, however many share them; ``instances`` are replicas.

    Empty if replicas of stages are static.
    """
    control = controller.elastic
    if not isinstance(control, StageControl):
        return {}
    history, span_s = control.replicas.history, summary["duration_s"]
    gpu_of = {number: engine.replica.gpus[0] for number, engine in controller.engines.items()}
    use = instance_use(placed, dict.fromkeys(controller.services, 1), history, span_s)
    busy_s = sum(summary["replica_busy_share"]) * span_s
    return {
        "gpu_seconds": gpu_seconds(placed, gpu_of, history, span_s),
        "gpu_busy_share": busy_s / use.instance_seconds if use.instance_seconds else None,
        "instances": use.summary(),
        "scale_events": [event_row(event) for event in history],
        "stage_loads": dict(sorted(_sources(history).items())),
        "decisions": {"count": report.looks, "cpu_ms_p99": None},
    }


def gpu_seconds(
    placed: Sequence[Replica], gpu_of: Mapping[int, int], history: Sequence[ScaleEvent], span_s: float
) -> float:
    """Return the time that GPUs hold a replica, summed over all GPUs."""
    on = Counter(gpu_of[replica.id] for replica in placed)
    total, since_s = 0.0, 0.0
    for event in history:
        if event.act not in ("load", "released", "lost"):
            continue
        now_s = min(event.now_ns / NS_PER_S, span_s)
        total += (now_s - since_s) * len(+on)
        since_s = now_s
        on[gpu_of[event.replica]] += 1 if event.act == "load" else -1
    return total + (span_s - since_s) * len(+on)


def _sources(history: Sequence[ScaleEvent]) -> Counter[str]:
    """Count the loads of replicas by source."""
    return Counter(event.reason.rpartition("from ")[2] for event in history if event.act == "load")
