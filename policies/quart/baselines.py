"""QUART's stage-level baselines, approximated: one sentence each in its paper, the constants are ours.

Neither is the published system: InferLine and Cocktail decide more, and use profiles that we do not have.
What is kept is the input of each system and the grain at which it scales. INFless, whose unit is the model,
is in ``infless``.
"""

from collections.abc import Callable

from policies.quart.demand import NS_PER_S, History, Periods, Sizing, by_rate, stop, targets_s
from policies.quart.free_room import FreeRoom, spread
from policies.quart.queueing import fewest_within
from serving.protocols.stages import PipelineView, StageDecision, StageView, StartReplicas


class PerStage:
    """Brings every stage to the number of replicas that a rule gives, within bounds, budget and room."""

    def __init__(self, rule: Callable[[StageView], tuple[int, int]]) -> None:
        self._rule = rule

    def decide(self, view: PipelineView, why: str) -> tuple[StageDecision, ...]:
        """Apply ``rule`` to each stage: it gives the number to grow to, and the number to shrink to."""
        room, budget = FreeRoom(view), max(view.max_replicas - view.supply, 0)
        decisions: list[StageDecision] = []
        for stage in view.stages:
            least, most = self._rule(stage)
            reason = f"{why}: stage {stage.index} wants {least}, {stage.supply} in supply"
            growth = min(least, stage.maximum) - stage.supply
            if growth > 0:
                gpus = spread(room, stage, min(growth, budget))
                budget -= len(gpus)
                if gpus:
                    decisions.append(StartReplicas(stage.index, len(gpus), reason, gpus=gpus))
            elif stage.supply > most:
                decisions += stop(stage, stage.supply - most, reason)
        return tuple(decisions)


class InferLine:
    """InferLine (SoCC '20), approximated: a plan for a mean rate, and a tuner that follows the envelope.

    ``planned_per_s``: the planned rate; 0: that of the first view in which requests arrive. ``sizing``: with
    ``utilization`` each stage has replicas that are busy for at most that share of the time; with ``slo`` the
    fewest that keep the stage's share of the SLO ("the cost-efficient configuration" that meets the SLO is
    InferLine's own aim). The tuner starts replicas at once if the largest rate of the last ``envelope_s``
    needs more. It stops some once ``settle_s`` have passed since its last change.
    """

    def __init__(
        self,
        planned_per_s: float = 0.0,
        utilization: float = 0.7,
        envelope_s: float = 30.0,
        settle_s: float = 15.0,
        period_s: float = 1.0,
        *,
        sizing: Sizing = "utilization",
    ) -> None:
        self._planned_per_s = planned_per_s
        self._utilization, self._sizing = utilization, sizing
        self._envelope = History(envelope_s)
        self._periods = Periods(period_s)
        self._settle_ns = round(settle_s * NS_PER_S)
        self._changed_ns = 0

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Follow the plan first, then the envelope."""
        if not self._periods.due(view.now_ns):
            return ()
        rate = view.stages[0].arrival_per_s
        self._planned_per_s = self._planned_per_s or rate
        self._envelope.add(view.now_ns, rate)
        most_per_s = self._envelope.most
        settled = view.now_ns - self._changed_ns >= self._settle_ns

        goals_s = targets_s(view)
        rate_per_s = max(self._planned_per_s, most_per_s)

        def rule(stage: StageView) -> tuple[int, int]:
            if self._sizing == "slo":
                wanted = fewest_within(goals_s[stage.index], rate_per_s, stage.replica_per_s)
            else:
                wanted = by_rate(rate_per_s, stage.replica_per_s, self._utilization)
            return wanted, wanted if settled else stage.supply

        why = f"planned for {self._planned_per_s:.1f} requests/s, {most_per_s:.1f} at most lately"
        decisions = PerStage(rule).decide(view, why)
        if decisions:
            self._changed_ns = view.now_ns
        return decisions


class Cocktail:
    """Cocktail (NSDI '22), approximated: each stage by a forecast of its own rate, with spare replicas.

    The forecast is a weighted moving average over ``history_s`` plus the trend for ``ahead_s`` more. Each
    stage keeps ``spares`` replicas beyond it.
    """

    def __init__(
        self,
        *,
        utilization: float = 0.8,
        ahead_s: float = 10.0,
        history_s: float = 30.0,
        spares: int = 1,
        keep_s: float = 30.0,
        period_s: float = 1.0,
    ) -> None:
        self._utilization = utilization
        self._ahead_s = ahead_s
        self._history_s = history_s
        self._spares = spares
        self._keep_s = keep_s
        self._periods = Periods(period_s)
        self._rates: dict[int, History] = {}
        self._wanted: dict[int, History] = {}

    def forecast_per_s(self, stage: int) -> float:
        """The rate forecast for the stage ``ahead_s`` after its last view; 0 or more."""
        rates = self._rates[stage]
        return max(rates.weighted + rates.slope_per_s * self._ahead_s, 0.0)

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Bring every stage to its forecast plus the spares."""
        if not self._periods.due(view.now_ns):
            return ()
        for stage in view.stages:
            self._rates.setdefault(stage.index, History(self._history_s)).add(
                view.now_ns, stage.arrival_per_s
            )

        def rule(stage: StageView) -> tuple[int, int]:
            expected = self.forecast_per_s(stage.index)
            wanted = by_rate(expected, stage.replica_per_s, self._utilization) + self._spares
            history = self._wanted.setdefault(stage.index, History(self._keep_s))
            history.add(view.now_ns, wanted)
            return wanted, int(history.most)

        return PerStage(rule).decide(view, f"forecast for {self._ahead_s:g} s ahead")
