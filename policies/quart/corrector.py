"""QUART's corrector (section 5.1): which stages are too slow, how far they grow, which are key."""

from dataclasses import dataclass
from math import ceil, inf, isfinite
from statistics import median

from policies.quart.pid import Pid
from policies.quart.queueing import delay_s, smallest_stable
from policies.quart.settings import REFERENCE, CorrectorSettings
from serving.protocols.stages import PipelineView, StageView

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Correction:
    """One stage: its expected delay, its target, and by how many replicas it is to grow."""

    stage: int
    delay_s: float
    target_s: float
    growth: int
    is_key: bool

    @property
    def reason(self) -> str:
        """The numbers, for the journal."""
        return f"delay {self.delay_s * 1e3:.0f} ms, target {self.target_s * 1e3:.0f} ms"


def targets_s(view: PipelineView, target_s: float = 0.0) -> tuple[float, ...]:
    """What a request may take at each stage: ``target_s``, or the SLO shared out by execution time.

    Without an SLO a request may take twice its execution time. A pass and a tenth of it are the least: below
    that no number of replicas helps, and every stage would grow for ever.
    """
    total_s = sum([stage.exec_s for stage in view.stages])
    slack = (view.slo_s or 2 * total_s) / total_s
    return tuple([max(target_s or slack * one.exec_s, 1.1 * one.service_s) for one in view.stages])


class Corrector:
    """Decides growth only; a stage shrinks by the smoother. It remembers one PID loop per stage."""

    def __init__(self, settings: CorrectorSettings = REFERENCE) -> None:
        self.settings = settings
        self._loops: dict[int, Pid] = {}
        self._looked_ns: int | None = None
        self._grown_ns: dict[int, int] = {}

    def expected_s(self, stage: StageView) -> float:
        """The longest of three: the formula's with all replicas that serve or load, what the queue needs to
        drain, and, when none loads, what was measured."""
        settings, replicas = self.settings, max(stage.supply, 1)
        formula_s = delay_s(
            stage.arrival_per_s,
            stage.replica_per_s,
            replicas,
            settings.form,
            stage.arrival_cv,
            stage.service_cv,
        )
        drain_s = stage.queued / (replicas * stage.replica_per_s) + stage.service_s
        measured_s = (stage.delay_s or 0.0) if stage.serving == stage.supply else 0.0
        return max(formula_s, drain_s, measured_s)

    def correct(self, view: PipelineView) -> tuple[Correction, ...]:
        """One for each stage, in order; empty between two periods."""
        settings = self.settings
        if self._looked_ns is not None and view.now_ns - self._looked_ns < settings.period_s * NS_PER_S:
            return ()
        last_ns, self._looked_ns = self._looked_ns, view.now_ns
        elapsed_s = settings.period_s if last_ns is None else (view.now_ns - last_ns) / NS_PER_S
        delays_s = [self.expected_s(stage) for stage in view.stages]
        goals_s = targets_s(view, settings.target_s)
        wants = [
            self._want(stage, delay, goal, elapsed_s, view.now_ns)
            for stage, delay, goal in zip(view.stages, delays_s, goals_s, strict=True)
        ]
        growths = within_budget(wants, delays_s, max(view.max_replicas - view.supply, 0))
        keys = self._keys(view, delays_s, goals_s, wants)
        for stage, growth in zip(view.stages, growths, strict=True):
            if growth:
                self._grown_ns[stage.index] = view.now_ns
        return tuple(
            [
                Correction(stage.index, delay, goal, growth, key)
                for stage, delay, goal, growth, key in zip(
                    view.stages, delays_s, goals_s, growths, keys, strict=True
                )
            ]
        )

    def _want(self, stage: StageView, delay: float, goal: float, elapsed_s: float, now_ns: int) -> int:
        """By how many replicas the stage is to grow, budgets of all stages aside."""
        most = min(stage.maximum, self.settings.most_replicas or stage.maximum) - stage.supply
        grown_ns = self._grown_ns.get(stage.index)
        cooling = grown_ns is not None and now_ns - grown_ns < self.settings.cool_down_s * NS_PER_S
        if most <= 0 or cooling:
            return 0
        if self.settings.control == "rate":
            return min(max(smallest_stable(stage.arrival_per_s, stage.replica_per_s) - stage.supply, 0), most)
        error = delay - goal if self.settings.sign == "delay_minus_target" else goal - delay
        if error == inf:
            return min(max(smallest_stable(stage.arrival_per_s, stage.replica_per_s) - stage.supply, 1), most)
        error = error / goal if self.settings.relative else error
        loop = self._loops.setdefault(stage.index, Pid(self.settings.gains))
        return ceil(loop.step(error, elapsed_s, most, hold=stage.serving < stage.supply))

    def _keys(
        self, view: PipelineView, delays_s: list[float], goals_s: tuple[float, ...], wants: list[int]
    ) -> list[bool]:
        ratios = [delay / goal for delay, goal in zip(delays_s, goals_s, strict=True)]
        if self.settings.key_rule == "released":
            return [
                (ratio - 1) * (1 + stage.arrival_per_s / 10) > 0.1
                for stage, ratio in zip(view.stages, ratios, strict=True)
            ]
        usual = median(ratios)
        return [
            want > 0 and isfinite(usual) and ratio > self.settings.key_margin * usual
            for want, ratio in zip(wants, ratios, strict=True)
        ]


def within_budget(wants: list[int], delays_s: list[float], budget: int) -> list[int]:
    """``wants`` cut to ``budget`` in all: one after the other to each that wants some, slowest first."""
    given = [0] * len(wants)
    order = sorted(range(len(wants)), key=lambda one: (-delays_s[one], one))
    while budget and given != wants:
        for one in order:
            if budget and given[one] < wants[one]:
                given[one] += 1
                budget -= 1
    return given
