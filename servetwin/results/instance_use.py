"""Instances and GPUs of a run over time, from its scale events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S

_BEGINS = ("load", "revive")
_ENDS = ("released", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUse:
    """Use over ``span_s``; an instance counts from the decision to load it until its GPUs are free again.

    ``steps``: (seconds, GPUs allocated, {role: instances}) after each change.
    """

    span_s: float
    gpu_seconds: float
    instance_seconds: float
    most: int
    mean_by_role: Mapping[str, float]
    steps: tuple[tuple[float, int, Mapping[str, int]], ...]

    def summary(self) -> dict[str, Any]:
        """Return the ``instances`` part of summary.json."""
        mean = self.instance_seconds / self.span_s if self.span_s else float(self.steps[0][1] and self.most)
        return {"mean": mean, "max": self.most, "mean_by_role": dict(self.mean_by_role)}


def instance_use(
    placed: Sequence[Replica], gpus_of: Mapping[str, int], history: Sequence[ScaleEvent], span_s: float
) -> InstanceUse:
    """Return the use. ``placed`` serve from the start; ``gpus_of``: GPUs of an instance of each model."""
    steps = tuple(_steps(placed, gpus_of, history))
    gpu_seconds = instance_seconds = 0.0
    by_role: defaultdict[str, float] = defaultdict(float)
    for position, (at_s, gpus, roles) in enumerate(steps):
        end_s = steps[position + 1][0] if position + 1 < len(steps) else span_s
        lasts_s = max(0.0, min(end_s, span_s) - min(at_s, span_s))
        gpu_seconds += gpus * lasts_s
        instance_seconds += sum(roles.values()) * lasts_s
        for role, count in roles.items():
            by_role[role] += count * lasts_s
    mean_by_role = {role: area / span_s if span_s else 0.0 for role, area in sorted(by_role.items())}
    most = max(sum(roles.values()) for _, _, roles in steps)
    return InstanceUse(
        span_s=span_s,
        gpu_seconds=gpu_seconds,
        instance_seconds=instance_seconds,
        most=most,
        mean_by_role=mean_by_role,
        steps=steps,
    )


def _steps(
    placed: Sequence[Replica], gpus_of: Mapping[str, int], history: Sequence[ScaleEvent]
) -> Iterator[tuple[float, int, Mapping[str, int]]]:
    role_of: dict[int, str] = {replica.id: replica.role for replica in placed}
    gpus = sum(len(replica.gpus) for replica in placed)
    yield 0.0, gpus, dict(Counter(role_of.values()))
    for event in history:
        if event.act in _BEGINS:
            role_of[event.replica] = event.role
            gpus += gpus_of[event.model]
        elif event.act in _ENDS:
            del role_of[event.replica]
            gpus -= gpus_of[event.model]
        elif event.act == "mutate":
            role_of[event.replica] = event.role
        else:
            continue
        yield event.now_ns / NS_PER_S, gpus, dict(Counter(role_of.values()))
