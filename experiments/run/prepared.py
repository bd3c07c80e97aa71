"""What a simulated run is made of before it starts, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.build.hardware import Hardware
from experiments.config.config import RunConfig
from experiments.results.unserved import Unserved
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.replica import Replica, Role
from traces.columns import Names
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

Progress = Callable[[int, int], None]  # (requests arrived, requests in all)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything of a run that is known before it starts."""

    config: RunConfig
    hardware_of_model: dict[str, Hardware]
    replicas: list[Replica]
    estimates: Estimates
    workload: Workload
    start: dict[Role, int] | None = None  # instances of every model by role, None: all that fit

    @property
    def hardware(self) -> Hardware:
        """That of the first model, which is the only one without ``models=``."""
        return next(iter(self.hardware_of_model.values()))


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the run gave, and what it cost the machine."""

    summary: dict[str, Any]
    columns: dict[str, np.ndarray | Names]
    wall_s: float
    cpu_s: float
    events: int
    policies: dict[str, Any] = field(default_factory=dict)  # PolicyWatch.section
    series: dict[str, np.ndarray | Names] | None = None  # with series.period_s alone
    unserved: Unserved = field(default_factory=Unserved)
    stages: dict[str, np.ndarray | Names] | None = None  # of models in stages alone
    stage_load: dict[str, np.ndarray | Names] | None = None  # the same over time
    use: dict[str, np.ndarray | Names] | None = None  # of GPUs, links and host memory, with series alone


@dataclass(frozen=True, slots=True)
class Parts:
    """A progress told in equal parts, one after the other."""

    on_progress: Progress | None
    parts: int

    def progress(self, place: int) -> Progress | None:
        """That of the part at ``place``, the first being 0."""
        told, parts = self.on_progress, self.parts
        if told is None or parts == 1:
            return told
        return lambda arrived, total: told((place * total + arrived) // parts, total)
