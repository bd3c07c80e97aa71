"""Input and output of a simulated run: what is known before it starts, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hwmodels.step_times.front_end import NO_FRONT_END, FrontEnd
from servetwin.assemble.expected_outputs import outgrows_expected
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.lengths import LengthLimits
from servetwin.config.config import RunConfig
from servetwin.results.unserved import Unserved
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.replica import Replica, Role
from traces.columns import Names
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

    from servetwin.assemble.front_end import FrontDoor
    from serving.controller import Controller
    from simcore.stopping import StopRule

OUTGROWS = "outgrows_expected"  # key of a journal's header
Progress = Callable[[int, int], None]  # (requests arrived, requests in all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything about a run that is known before it starts.

    ``on_controller`` receives the run's controller before the first event. ``stops`` makes the rule that may
    end the run early, which is told of the run's front end; None: the run goes on to its last request.
    """

    config: RunConfig
    hardware_of_model: dict[str, Hardware]
    replicas: list[Replica]
    estimates: Estimates
    workload: Workload
    limits: LengthLimits
    start: dict[Role, int] | None = None  # instances of every model by role; None: as many as fit
    on_controller: Callable[[Controller], None] | None = None
    stops: Callable[[Prepared, FrontDoor | None], StopRule] | None = None
    front_end: FrontEnd = NO_FRONT_END

    @property
    def hardware(self) -> Hardware:
        """Return the hardware of the first model, which is the only one without ``models=``."""
        return next(iter(self.hardware_of_model.values()))

    @property
    def outgrows_expected(self) -> bool:
        """Whether an output is longer than what the control plane expects of its request."""
        return outgrows_expected(self.config, self.workload, self.limits)

    def journal_header(self) -> dict[str, Any]:
        """Return the facts about the workload that a replay reads from the journal's header."""
        longer = {OUTGROWS: True} if self.outgrows_expected else {}
        return {"start": self.start, **longer}


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Results of a run, and what it cost the machine."""

    summary: dict[str, Any]
    columns: dict[str, np.ndarray | Names]
    wall_s: float
    cpu_s: float
    events: int
    policies: dict[str, Any] = field(default_factory=dict)  # PolicyWatch.section
    series: dict[str, np.ndarray | Names] | None = None  # only with series.period_s
    unserved: Unserved = field(default_factory=Unserved)
    stages: dict[str, np.ndarray | Names] | None = None  # only of models in stages
    stage_load: dict[str, np.ndarray | Names] | None = None  # the same over time, of models in stages
    use: dict[str, np.ndarray | Names] | None = None  # of GPUs, links and host memory; only with series
    stopped: str = ""  # why a rule ended the run early: then there is neither summary nor column


@dataclass(frozen=True, slots=True)
class Parts:
    """A progress report divided into equal parts that follow each other."""

    on_progress: Progress | None
    parts: int

    def progress(self, place: int) -> Progress | None:
        """Return the progress callback of the part at ``place``, counted from 0."""
        report, parts = self.on_progress, self.parts
        if report is None or parts == 1:
            return report
        return lambda arrived, total: report((place * total + arrived) // parts, total)
