"""Views of a pipeline for tests of stage scalers: even stages of a model ``m`` on hosts of four GPUs."""

from collections.abc import Sequence
from typing import Any

from serving.protocols.stages import (
    HostCopyView,
    PipelineView,
    StageGpuView,
    StageHostView,
    StageReplicaView,
    StageView,
)

GIB = 1 << 30


def stage(index: int, replicas: int = 1, **other: Any) -> StageView:
    """A stage at rest: replicas index * 100 and on, all on host 0, a pass of 0.1 s, 5 requests per second."""
    there = other.pop("there", None)
    if there is None:
        there = tuple(StageReplicaView(index * 100 + one, 0, "serving") for one in range(replicas))
    values: dict[str, Any] = {
        "minimum": 1,
        "maximum": 8,
        "arrival_per_s": 5.0,
        "arrival_cv": 1.0,
        "queued": 0,
        "service_s": 0.1,
        "service_cv": 0.2,
        "delay_s": None,
        "exec_s": 0.1,
        "bytes": 5 * GIB,
    }
    return StageView(index, there, **(values | other))


def host(
    index: int, free_gpus: int = 4, copies: Sequence[tuple[str, int]] = (), **other: Any
) -> StageHostView:
    """Four GPUs of 48 GiB, the last ``free_gpus`` without replicas; 100 free cores; copies of 5 GiB."""
    gpus = tuple(
        StageGpuView(
            index * 4 + one, 48 * GIB if one >= 4 - free_gpus else 43 * GIB, int(one < 4 - free_gpus)
        )
        for one in range(4)
    )
    kept = tuple(HostCopyView(model, number, 5 * GIB, at) for at, (model, number) in enumerate(copies))
    values: dict[str, Any] = {
        "free_cores": 100,
        "memory_bytes": 1024 * GIB,
        "used_bytes": 5 * GIB * len(kept),
    }
    return StageHostView(index, gpus, copies=kept, **(values | other))


def pipeline(stages: Sequence[StageView], hosts: Sequence[StageHostView] = (), **other: Any) -> PipelineView:
    """At second 10, an SLO of twice the execution time; two hosts unless some are given."""
    values: dict[str, Any] = {
        "now_ns": 10_000_000_000,
        "window_s": 10.0,
        "slo_s": 2 * sum(one.exec_s for one in stages),
        "max_replicas": 64,
    }
    return PipelineView(
        model="m", stages=tuple(stages), hosts=tuple(hosts) or (host(0, 3), host(1)), **(values | other)
    )
