"""How the burstiness of arrivals changes along the stages: Whitt's approximation of departures."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

from serving.protocols.stages import PipelineView, StageView


def departure_cv(arrival_cv: float, service_cv: float, utilization: float, replicas: int) -> float:
    """CV of the gaps between departures of a G/G/c queue (Whitt, The queueing network analyzer, 1983).

    Its square is 1 + (1 - rho^2)(ca^2 - 1) + rho^2 / sqrt(c) (cs^2 - 1): an idle stage passes its arrivals on
    unchanged, a busy one sends requests at its own service rhythm. If work arrives faster than it is done,
    rho is 1.
    """
    busy = min(utilization, 1.0) ** 2
    squared = 1 + (1 - busy) * (arrival_cv**2 - 1) + busy / sqrt(replicas) * (service_cv**2 - 1)
    return sqrt(max(squared, 0.0))


def utilization_of(stage: StageView) -> float:
    """The share of time that the stage's replicas work, by rates; loading replicas count."""
    return stage.arrival_per_s / (max(stage.supply, 1) * stage.replica_per_s)


def propagated(first_cv: float, stages: Sequence[StageView]) -> tuple[float, ...]:
    """CV of the arrivals at each stage, computed from that at the first."""
    cvs = [first_cv]
    for stage in stages[:-1]:
        cvs.append(departure_cv(cvs[-1], stage.service_cv, utilization_of(stage), max(stage.supply, 1)))
    return tuple(cvs)


class CvPredictor(Protocol):
    """Predicts the CV of the arrivals at each stage of a pipeline."""

    def predict(self, view: PipelineView) -> tuple[float, ...]:
        """The CV of each stage, in order."""


@dataclass(frozen=True, slots=True)
class Whitt:
    """Whitt's formula, applied to the measured CV at the first stage."""

    def predict(self, view: PipelineView) -> tuple[float, ...]:
        """The CV of each stage, in order."""
        return propagated(view.stages[0].arrival_cv, view.stages)


@dataclass(frozen=True, slots=True)
class Measured:
    """The CV measured at each stage in the view's window; no prediction."""

    def predict(self, view: PipelineView) -> tuple[float, ...]:
        """The CV of each stage, in order."""
        return tuple([stage.arrival_cv for stage in view.stages])
