"""QUART's corrector (section 5.1): which stages are too slow, how far they grow, which are key stages."""

from dataclasses import dataclass
from math import ceil, inf, isfinite
from statistics import median_low

from policies.quart.demand import targets_s
from policies.quart.pid import Pid
from policies.quart.queueing import DelayForm, delay_s, fewest_within, smallest_stable
from policies.quart.settings import REFERENCE, CorrectorSettings
from serving.protocols.stages import PipelineView, StageView

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Correction:
    """One stage: its expected delay, its target, and by how many replicas it grows."""

    stage: int
    delay_s: float
    target_s: float
    growth: int
    is_key: bool

    @property
    def reason(self) -> str:
        """The numbers, for the journal."""
        delay = f"delay {self.delay_s * 1e3:.0f} ms" if isfinite(self.delay_s) else "more comes than it does"
        return f"{delay}, target {self.target_s * 1e3:.0f} ms"


class Corrector:
    """Decides growth only; the smoother shrinks stages. The corrector keeps one PID loop per stage."""

    def __init__(self, settings: CorrectorSettings = REFERENCE) -> None:
        self.settings = settings
        self._loops: dict[int, Pid] = {}
        self._looked_ns: int | None = None
        self._grown_ns: dict[int, int] = {}

    def expected_s(self, stage: StageView, arrival_per_s: float) -> float:
        """The formula's delay with serving and loading replicas; if none loads, at least the measured one."""
        settings = self.settings
        formula_s = delay_s(
            arrival_per_s,
            stage.replica_per_s,
            max(stage.supply, 1),
            form=settings.form,
            arrival_cv=stage.arrival_cv,
            service_cv=stage.service_cv,
        )
        return max(formula_s, _measured_s(stage))

    def arrivals_per_s(self, view: PipelineView) -> list[float]:
        """The load of each stage: the first stage's arrivals if higher than its own, and its queue."""
        first = view.stages[0].arrival_per_s
        return [
            max(stage.arrival_per_s, first) + stage.queued / self.settings.drain_s for stage in view.stages
        ]

    def correct(self, view: PipelineView) -> tuple[Correction, ...]:
        """One correction for each stage, in order; empty between two periods."""
        settings = self.settings
        if self._looked_ns is not None and view.now_ns - self._looked_ns < settings.period_s * NS_PER_S:
            return ()
        last_ns, self._looked_ns = self._looked_ns, view.now_ns
        elapsed_s = settings.period_s if last_ns is None else (view.now_ns - last_ns) / NS_PER_S
        rates = self.arrivals_per_s(view)
        delays_s = [self.expected_s(stage, rate) for stage, rate in zip(view.stages, rates, strict=True)]
        goals_s = targets_s(view, settings.target_s)
        wants = [
            self._want(stage, rate, (delay, goal), elapsed_s, view.now_ns)
            for stage, rate, delay, goal in zip(view.stages, rates, delays_s, goals_s, strict=True)
        ]
        growths = within_budget(wants, delays_s, max(view.max_replicas - view.supply, 0))
        keys = self._keys(view, delays_s, goals_s, growths)
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

    def _want(
        self, stage: StageView, rate: float, times_s: tuple[float, float], elapsed_s: float, now_ns: int
    ) -> int:
        """By how many replicas the stage should grow, before the budget of all stages is applied.

        The PID loop receives every error, even if no replica may be added: during cool-down, at the maximum,
        or if no more are needed. Otherwise it would later continue from an outdated integral and slope.
        """
        delay, goal = times_s
        most = self._most(stage, now_ns)
        stable = smallest_stable(rate, stage.replica_per_s) - stage.supply
        if self.settings.control == "rate":
            return min(max(stable, 0), most)
        is_ours = self.settings.sign == "delay_minus_target"
        error = delay - goal if is_ours else goal - delay
        loop = self._loops.setdefault(stage.index, Pid(self.settings.gains, self.settings.anti_windup))
        is_loading = stage.serving < stage.supply
        if error == inf:
            loop.step(error, elapsed_s, most, is_loading)
            return min(max(stable, 1), most)
        if self.settings.bounded and is_ours and most:
            most = max(min(most, self._needed(stage, rate, goal) - stage.supply), 0)
        return ceil(loop.step(error / goal if self.settings.relative else error, elapsed_s, most, is_loading))

    def _most(self, stage: StageView, now_ns: int) -> int:
        """How many replicas the stage may add up to its maximum; 0 while it cools down."""
        grown_ns = self._grown_ns.get(stage.index)
        if grown_ns is not None and now_ns - grown_ns < self.settings.cool_down_s * NS_PER_S:
            return 0
        return max(min(stage.maximum, self.settings.most_replicas or stage.maximum) - stage.supply, 0)

    def _needed(self, stage: StageView, rate: float, goal: float) -> int:
        """Replicas that meet the target by formula and CVs; one more if the target is still missed."""
        needed = fewest_in_all(stage, rate, stage.arrival_cv, goal, self.settings.form)
        return max(needed, stage.supply + 1) if stage.queued and _measured_s(stage) > goal else needed

    def _keys(
        self, view: PipelineView, delays_s: list[float], goals_s: tuple[float, ...], growths: list[int]
    ) -> list[bool]:
        """Which stages are found to be key stages now.

        Section 6.1: "When Corrector identifies a key stage and adds replicas to it, it is appended to the
        list." ``outstanding`` also asks for the measured delay and queue, because the formula's delay of few
        passes is mostly noise.
        """
        if self.settings.key_rule == "grown":
            return [growth > 0 for growth in growths]
        if self.settings.key_rule == "released":
            return [
                (delay / goal - 1) * (1 + stage.arrival_per_s / 10) > 0.1
                for stage, delay, goal in zip(view.stages, delays_s, goals_s, strict=True)
            ]
        passes = self.settings.key_passes
        behind = [seen_s(stage, passes) / goal for stage, goal in zip(view.stages, goals_s, strict=True)]
        least = max(1.0, self.settings.key_margin * median_low(behind))
        return [growth > 0 and ratio > least for growth, ratio in zip(growths, behind, strict=True)]


def _measured_s(stage: StageView) -> float:
    """The measured delay; 0 if some replicas do not serve yet, since fewer replicas caused it."""
    return (stage.delay_s or 0.0) if stage.serving == stage.supply else 0.0


def seen_s(stage: StageView, passes: int) -> float:
    """Observed time of a request at a stage: the delay of at least ``passes`` passes, or its queue.

    The queue counts as the time in which the serving and loading replicas work it off.
    """
    queue_s = stage.queued / (max(stage.supply, 1) * stage.replica_per_s)
    delay = stage.delay_s if stage.passed >= passes else None
    return max(queue_s, delay or 0.0)


def fewest_in_all(stage: StageView, rate: float, cv: float, target_s: float, form: DelayForm) -> int:
    """The fewest replicas that meet the target both by ``form`` and with arrivals of this CV."""
    forms: tuple[DelayForm, ...] = (form, "allen_cunneen")
    return max(
        fewest_within(
            target_s, rate, stage.replica_per_s, form=form, arrival_cv=cv, service_cv=stage.service_cv
        )
        for form in forms
    )


def within_budget(wants: list[int], delays_s: list[float], budget: int) -> list[int]:
    """``wants`` cut to ``budget`` in total: each stage in turn gets one replica, the slowest first."""
    shares = [0] * len(wants)
    order = sorted(range(len(wants)), key=lambda index: (-delays_s[index], index))
    while budget and shares != wants:
        for index in order:
            if budget and shares[index] < wants[index]:
                shares[index] += 1
                budget -= 1
    return shares
