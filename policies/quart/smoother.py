"""QUART's smoother (section 5.2): which stages can give replicas back, by their burstiness."""

from collections import deque
from dataclasses import dataclass
from math import ceil, exp
from typing import Literal

from policies.quart.corrector import fewest_in_all
from policies.quart.cv import CvPredictor, Whitt
from policies.quart.demand import targets_s
from policies.quart.queueing import DelayForm, smallest_stable
from policies.quart.settings import SmootherSettings
from serving.protocols.stages import PipelineView, StageView

NS_PER_S = 1_000_000_000


def beta(cv: float, form: Literal["cv", "released"] = "cv") -> float:
    """Weight of the stage's own replicas against its neighbours', higher for a burstier stage (Eq. 7)."""
    if form == "released":
        return 0.5 + 0.5 / (1 + exp(1 - cv))
    return cv * cv / (1 + cv * cv)


def smoothed(replicas: tuple[int, ...], weights: tuple[float, ...]) -> tuple[float, ...]:
    """Eq. 7: each stage's replicas, pulled towards the mean of its neighbours' by 1 - beta."""
    found = []
    for index, (own, weight) in enumerate(zip(replicas, weights, strict=True)):
        neighbours = (*replicas[max(index - 1, 0) : index], *replicas[index + 1 : index + 2])
        mean = sum(neighbours) / len(neighbours) if neighbours else own
        found.append(weight * own + (1 - weight) * mean)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Surplus:
    """One stage: how many replicas it can give up, and the ``least`` that must stay."""

    stage: int
    count: int
    cv: float
    least: int


class Smoother:
    """Decides which stages shrink, from each stage's need at every look of the last ``hold_s``."""

    def __init__(
        self, predictor: CvPredictor | None = None, settings: SmootherSettings | None = None
    ) -> None:
        self.predictor: CvPredictor = predictor or Whitt()
        self.settings = settings or SmootherSettings()
        self._needs: dict[int, deque[tuple[int, int]]] = {}
        self._since_ns: int | None = None

    def smooth(
        self,
        view: PipelineView,
        target_s: float = 0.0,
        form: DelayForm = "erlang_c",
        compensated: bool = False,
    ) -> tuple[Surplus, ...]:
        """Stages that have more than they need and no queue, in order.

        A stage wants the replicas for its rate and its predicted CV (Algorithm 1, line 8) by the corrector's
        ``form``, so that the corrector does not start them again. Eq. 7 pulls this towards the neighbours'
        wants, rounded up. The result is never below the stage's own want or, with ``compensated``, below the
        stable number: the CPU compensator then checks the target.
        """
        cvs, goals_s = self.predictor.predict(view), targets_s(view, target_s)
        rates = [max(stage_view.arrival_per_s, view.stages[0].arrival_per_s) for stage_view in view.stages]
        wants = tuple(
            [least_replicas(*of, form) for of in zip(view.stages, rates, cvs, goals_s, strict=True)]
        )
        drawn = smoothed(wants, tuple([beta(cv, self.settings.beta) for cv in cvs]))
        if self._since_ns is None:
            self._since_ns = view.now_ns
        decisions = []
        for stage, rate, cv, want, drawn_to in zip(view.stages, rates, cvs, wants, drawn, strict=True):
            least = stable_replicas(stage, rate) if compensated else want
            need = self._held_replicas(stage.index, max(least, ceil(drawn_to - 1e-9)), view.now_ns)
            count = stage.supply - max(need, stage.minimum)
            if count > 0 and not stage.queued and stage.serving == stage.supply:
                decisions.append(Surplus(stage.index, count, cv, least))
        return tuple(decisions)

    def _held_replicas(self, stage: int, need: int, now_ns: int) -> int:
        """The largest need of the last ``hold_s``; before ``hold_s`` have passed, nothing may go."""
        hold_ns = self.settings.hold_s * NS_PER_S
        needs = self._needs.setdefault(stage, deque())
        needs.append((now_ns, need))
        while needs[0][0] < now_ns - hold_ns:
            needs.popleft()
        if self._since_ns is None or now_ns - self._since_ns < hold_ns:
            return 1 << 30
        return max(one for _, one in needs)


def stable_replicas(stage: StageView, rate: float) -> int:
    """The fewest replicas that work faster than requests arrive, at least the minimum."""
    return max(stage.minimum, smallest_stable(rate, stage.replica_per_s))


def least_replicas(stage: StageView, rate: float, cv: float, target_s: float, form: DelayForm) -> int:
    """The fewest replicas for the stage: its minimum, and enough to keep its delay under the target."""
    return max(stage.minimum, fewest_in_all(stage, rate, cv, target_s, form) if rate else 0)
