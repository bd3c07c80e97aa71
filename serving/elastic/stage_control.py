"""Scales replicas of pipeline stages: asks the stage scaler once per period and carries out its decisions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from serving.elastic.replica_control import Handler
from serving.elastic.stage_recut import StageRecut
from serving.elastic.stage_replicas import Place, StageReplicas
from serving.elastic.stage_setup import StageScaling
from serving.elastic.stage_views import StageViews
from serving.elastic.stall_detection import StageStalls
from serving.engine.engine import Engine
from serving.protocols.scaling import ScaleEvent
from serving.protocols.stage_answers import CheckedStageScaler
from serving.protocols.stages import (
    CutAnew,
    EvictCopy,
    KeepCopy,
    MarkKeyStages,
    SetBatch,
    SetCores,
    StageDecision,
    StartReplicas,
    StopReplicas,
)
from serving.services.staged import StagedService
from serving.services.stages.gpu_seats import GpuSeats
from serving.vocabulary.actions import Action, Wake
from serving.vocabulary.events import (
    Loaded,
    LoadStopped,
    LossNotice,
    LostHost,
    LostLink,
    LostSsd,
    Opened,
    Woke,
)
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

NO_REPLICA: Final = ("mark_key", "keep_copy", "evict_copy")  # acts that change no replica
LOOKS = 4  # the least number of looks without change before a run counts as stalled


@dataclass(frozen=True, slots=True)
class KeyMark:
    """The key stages of a model from ``now_ns`` on."""

    now_ns: int
    model: str
    stages: frozenset[int]


class StageControl:
    """ReplicaControl of models in stages.

    ``replicas`` has the history of each replica, ``marks`` the key stages and since when.
    """

    __slots__ = (
        "_models", "_period_ns", "_recut", "_scaler", "_services", "_window_ns", "decided", "has_rounds",
        "looks", "marks", "replicas", "scales", "touched",
    )  # fmt: skip

    def __init__(
        self,
        setup: StageScaling,
        engines: Mapping[int, Engine],
        services: Mapping[str, StagedService],
        seats: GpuSeats,
        place: Place,
    ) -> None:
        self.scales, self.has_rounds = True, False
        self.touched = set[str]()
        self._period_ns, self._window_ns = setup.period_ns, setup.window_ns
        self._scaler = CheckedStageScaler(setup.scaler)
        self._services = services
        self.replicas = StageReplicas(setup, engines, services, seats, place)
        self._recut = StageRecut(self.replicas, engines, services)
        self._models = {
            model: StageViews(setup, service, self.replicas, seats)
            for model, service in sorted(services.items())
        }
        self.looks = self.decided = 0
        self.marks: list[KeyMark] = []

    def stall_rule(self) -> StageStalls:
        """A rule that follows the progress of all stages."""
        return StageStalls(self)

    @property
    def changes(self) -> int:
        """Number of events that changed a replica."""
        return self.replicas.changes

    @property
    def passes(self) -> int:
        """Number of passes that have ended, of all stages."""
        return sum([stage.counts.passes for service in self._services.values() for stage in service.stages])

    @property
    def memory_ns(self) -> int | None:
        """How long past events can affect decisions; None if the scaler does not say."""
        memory_s = self._scaler.memory_s
        if memory_s is None:
            return None
        return max(round(memory_s * NS_PER_S), LOOKS * self._period_ns) + self._window_ns

    def goes_on(self) -> bool:
        """Whether a stage computes, a cut is coming, or a replica loads for a stage with queued requests."""
        loading = {replica for replica, state in self.replicas.states.items() if state == "loading"}
        return any(
            service.computes(stage)
            or self._recut.comes(service)
            or (
                service.queued_at(stage)
                and any(service.index_of(replica) == stage.index for replica in loading)
            )
            for service in self._services.values()
            for stage in service.stages
        )

    def what_waits(self) -> str:
        """The first stage with queued requests, and the result of its model's last decision."""
        for model, service in sorted(self._services.items()):
            for stage in service.stages:
                if queued := service.queued_at(stage):
                    reasons = [
                        event.reason
                        for event in self.replicas.history
                        if event.model == model and event.act not in NO_REPLICA
                    ]
                    last = f" (last decision: {reasons[-1]})" if reasons else ""
                    there = stage.fleet.replicas
                    where = f"stage {stage.index} of {model}, which has replicas {there}"
                    return f"{queued} requests wait for {where}{last}"
        return "no request waits for a stage"

    def handlers(self) -> Mapping[type, Handler]:
        """Handlers for events about parameters, losses and time."""
        return {
            Opened: self._opened,
            Woke: self._woke,
            Loaded: self._loaded,
            LoadStopped: self._load_stopped,
            LossNotice: self._loss_notice,
            LostHost: self._lost_host,
            LostSsd: self._lost_ssd,
            LostLink: self._lost_link,
        }

    def _opened(self, now_ns: int, event: Opened, actions: list[Action]) -> None:
        self._arm(now_ns, actions)

    def _loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        self.replicas.loaded(now_ns, event, actions)
        if event.fully_loaded:
            self._recut.look(now_ns, actions)

    def _load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        self.replicas.load_stopped(now_ns, event, actions)
        self._recut.look(now_ns, actions)

    def _woke(self, now_ns: int, event: Woke, actions: list[Action]) -> None:
        """Look at every model in turn; a decision for one is visible to the next."""
        self.looks += 1
        for model, views in self._models.items():
            for decision in self._scaler.scale(views.view(now_ns)):
                self.decided += 1
                self._carry_out(now_ns, self._services[model], views, decision, actions)
        self._recut.look(now_ns, actions)
        self.replicas.empty_all(now_ns, actions)
        self._arm(now_ns, actions)

    def _arm(self, now_ns: int, actions: list[Action]) -> None:
        actions.append(Wake(now_ns + self._period_ns, "stages are looked at"))

    def _carry_out(
        self,
        now_ns: int,
        service: StagedService,
        views: StageViews,
        decision: StageDecision,
        actions: list[Action],
    ) -> None:
        replicas = self.replicas
        if isinstance(decision, StartReplicas):
            replicas.start(now_ns, service, service.stages[decision.stage], decision, actions)
        elif isinstance(decision, StopReplicas):
            replicas.stop(now_ns, service, decision, actions)
        elif isinstance(decision, SetCores):
            for replica in decision.replicas:
                replicas.set_cores(replica, decision.cpu_cores)
        elif isinstance(decision, SetBatch):
            service.set_batches(decision.replicas, decision.most)
        elif isinstance(decision, KeepCopy):
            part = service.stages[decision.stage].part
            replicas.hosts.copies.keep(now_ns, decision.host, part, replicas.has(decision.host, part))
            self._tell_copy(now_ns, "keep_copy", service.model, decision)
        elif isinstance(decision, EvictCopy):
            stages = self._services[decision.model].stages
            replicas.hosts.copies.evict(now_ns, decision.host, stages[decision.stage].part)
            self._tell_copy(now_ns, "evict_copy", decision.model, decision)
        elif isinstance(decision, CutAnew):
            self._recut.begin(now_ns, service, decision, actions)
        elif isinstance(decision, MarkKeyStages):
            views.keys = frozenset(decision.stages)
            self.marks.append(KeyMark(now_ns, service.model, views.keys))
            named = ", ".join([str(stage) for stage in decision.stages]) or "none"
            self._tell(now_ns, "mark_key", service.model, f"key stages: {named}; {decision.reason}")
        else:
            assert_never(decision)

    def _tell_copy(self, now_ns: int, act: str, model: str, decision: KeepCopy | EvictCopy) -> None:
        where = f"stage {decision.stage} on host {decision.host}"
        self._tell(now_ns, act, model, f"{where}: {decision.reason}")

    def _tell(self, now_ns: int, act: str, model: str, reason: str) -> None:
        """Add an event to the history; no replica changes."""
        self.replicas.history.append(
            ScaleEvent(now_ns, act, model=model, role="both", replica=-1, reason=reason)
        )

    def _loss_notice(self, now_ns: int, event: LossNotice, actions: list[Action]) -> None:
        """Do nothing: requests of a lost stage replica start again on other replicas."""

    def _lost_host(self, now_ns: int, event: LostHost, actions: list[Action]) -> None:
        self.replicas.hosts.lose(event.host)

    def _lost_ssd(self, now_ns: int, event: LostSsd, actions: list[Action]) -> None:
        self.replicas.hosts.lost_ssds.add(event.host)
        self.replicas.without_ssd(event.host)

    def _lost_link(self, now_ns: int, event: LostLink, actions: list[Action]) -> None:
        """Plan around a lost link; its loads are reported as stopped."""
        self.replicas.without_nic(event.nic)

    def arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        """Do nothing: stages are considered once per period."""

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """Release draining replicas that are empty: this one, or others that had the same requests."""
        self.replicas.empty_all(now_ns, actions)

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Remove a lost replica."""
        self.replicas.lost(now_ns, replica, cause)
        self._recut.look(now_ns, actions)
        self.replicas.empty_all(now_ns, actions)
