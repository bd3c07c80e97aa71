"""The elastic controller: when it looks at a model, and which policy decides about the model's instances.

Once per period of the load monitor the controller looks at every model that is not at rest. It looks at a
model without instances as soon as a request arrives; docs/STATES.md has the table.
``serving.elastic.deployment`` carries out what the policies decide.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from serving.elastic.deployment import Deployment
from serving.elastic.instances import Instances
from serving.elastic.replica_control import Handler
from serving.elastic.setup import ElasticParts
from serving.elastic.shortage import Shortage
from serving.elastic.signals import LoadTimes, ModelSignals, SignalRules
from serving.elastic.stall_detection import StallDetector
from serving.engine.engine import Engine
from serving.engine.load_reports import LoadReports
from serving.protocols.provisioning import MissingInstances
from serving.protocols.scale_answers import CheckedScaler, checked_arbiter
from serving.protocols.scaling import (
    OBSTACLES,
    InstanceState,
    InstanceView,
    NoChangeBounds,
    Obstacle,
    ScaleDecision,
    ScalingView,
)
from serving.services.rounds import Rounds, Ticks
from serving.services.service import Service
from serving.vocabulary.actions import Action
from serving.vocabulary.current_event import Present
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
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

SETTLED_LOOKS = 8  # if rounds are more frequent than looks, ticks say little about the monitor's decisions

# The load monitor's view of one model, read from live data at each access and never copied.


class LiveRole:
    """serving.protocols.scaling.RoleView of one role of one model."""

    __slots__ = (
        "_instances", "_last_ran_ns", "_model", "_reports", "_service", "maximum", "minimum", "role",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        role: Role,
        *,
        bounds: tuple[int, int],
        instances: Instances,
        service: Service,
        last_ran_ns: dict[int, int],
        reports: LoadReports | None = None,
    ) -> None:
        """``bounds``: the fewest and the most instances. ``last_ran_ns``: when each replica last reported.

        ``reports``: the load reports of the model's instances, if a policy reads them.
        """
        self.role = role
        self.minimum, self.maximum = bounds
        self._model = model
        self._instances = instances
        self._service = service
        self._last_ran_ns = last_ran_ns
        self._reports = reports

    @property
    def supply(self) -> int:
        """Number of instances that serve or load."""
        return self._instances.supply(self._model, self.role)

    def in_state(self, state: InstanceState) -> list[InstanceView]:
        """The instances in this state, by id."""
        views = []
        for instance in self._instances.of(self._model, self.role):
            if instance.state == state:
                number = instance.replica.id
                outstanding = self._service.outstanding(number)
                idle_since_ns = None if outstanding else self._last_ran_ns.get(number, 0)
                report = None if self._reports is None else self._reports.of(number)
                views.append(InstanceView(number, state, outstanding, idle_since_ns, report))
        return views


class LastAnswer(NamedTuple):
    """The inputs of the scaler's last answer for a model: while they are unchanged it is not asked again.

    ``loads``: see ``loads_of``. ``changes``: how often the model's instances had changed. ``until_ns``: when
    the answer expires. ``shortage``: the model lacked instances, so free GPUs also change the answer.
    """

    loads: tuple[int, int, int]
    changes: int
    until_ns: int
    short: bool


def loads_of(model: ScalingView | Service) -> tuple[int, int, int]:
    """Backlog, KV and migrating tokens."""
    return model.backlog_tokens, model.kv_tokens, model.migrating_tokens


# Scaler answers that still hold: while loads are within bounds, or until a time.


class StandingAnswers:
    """``no_change_bounds``: for each model, the load bounds within which the scaler decides nothing."""

    __slots__ = ("_last", "_scaler", "no_change_bounds")

    def __init__(self, scaler: CheckedScaler) -> None:
        self._scaler = scaler
        self.no_change_bounds: dict[str, NoChangeBounds] = {}
        self._last: dict[str, LastAnswer] = {}

    def names_bounds(self, view: ScalingView) -> bool:
        """Whether the scaler names such bounds.

        The bounds are kept: the model is not looked at until one of its loads exceeds its bound.
        """
        ask = self._scaler.no_change_bounds
        bounds = None if ask is None else ask(view)
        if bounds is None:
            self.no_change_bounds.pop(view.model, None)
            return False
        self.no_change_bounds[view.model] = bounds
        return True

    def forget(self, model: str) -> None:
        """Drop the model's answer: the scaler decided a change."""
        self._last.pop(model, None)

    def keep(self, view: ScalingView, changes: int, short: bool) -> None:
        """Keep an answer with no decision or only shortages. ``changes``: as in ``Instances``."""
        if self._scaler.no_change_until_ns is not None:
            until_ns = self._scaler.no_change_until_ns(view)
            self._last[view.model] = LastAnswer(loads_of(view), changes, until_ns, short)

    def holds(
        self, now_ns: int, model: str, changes: int, service: Service, gpus_obtainable: Callable[[], bool]
    ) -> bool:
        """Whether the scaler would repeat its last answer, and the answer would have no effect."""
        last = self._last.get(model)
        return (
            last is not None
            and now_ns < last.until_ns
            and last.changes == changes
            and last.loads == loads_of(service)
            and not (last.short and gpus_obtainable())
        )

    def until_ns(self) -> list[int] | None:
        """Until when the last answers hold; None if the scaler does not say."""
        if self._scaler.no_change_until_ns is None:
            return None
        return [last.until_ns for last in self._last.values()]


class Elastic:
    """Asks the scaling policies and lets ``deployment`` carry out their decisions."""

    __slots__ = (
        "_active", "_arbiter", "_idle_models", "_last_ran_ns", "_live", "_present", "_roles", "_scaler",
        "_services", "_setup", "_shortage", "_signals", "answers", "deployment", "scales", "ticks",
    )  # fmt: skip

    def __init__(
        self,
        parts: ElasticParts,
        *,
        placed: Sequence[Replica],
        engines: Mapping[int, Engine],
        services: Mapping[str, Service],
        place: Callable[[Replica, Role, bool], None],
        present: Present,
        rounds: Rounds | None = None,
        reports: Mapping[str, LoadReports] = MappingProxyType({}),
    ) -> None:
        """``placed``: replicas that serve from the start; ``place`` gives a replica its engine.

        ``rounds``: when instances are paired. ``reports``: load reports by model, if a policy reads them.
        """
        self.scales, self._present = True, present
        self._setup = setup = parts.setup
        self._scaler = CheckedScaler(parts.policies.scaler)
        self._arbiter = checked_arbiter(parts.policies.arbiter)
        self.deployment = Deployment(parts, placed, engines, services, place)
        instances, last_ran_ns = self.deployment.instances, self.deployment.active_ns
        self._live = instances.live
        self._services = services
        self._roles = {
            model: tuple(
                LiveRole(
                    model,
                    role,
                    bounds=bounds,
                    instances=instances,
                    service=services[model],
                    last_ran_ns=last_ran_ns,
                    reports=(reports or {}).get(model),
                )
                for role, bounds in limits.bounds.items()
            )
            for model, limits in setup.limits.items()
        }
        self._active: set[str] = set()  # models that are not at rest
        self.ticks = Ticks(setup.period_ns, rounds)
        self._shortage = Shortage()
        # Models with an idle instance; None: not computed yet
        self._idle_models: list[ScalingView] | None = None
        self._last_ran_ns = last_ran_ns
        self.answers = StandingAnswers(self._scaler)
        self._signals = {} if setup.signals is None else self._models_signals(setup.signals, engines)

    def _models_signals(self, rules: SignalRules, engines: Mapping[int, Engine]) -> dict[str, ModelSignals]:
        """What monitoring knows of each model, for a scaler that reads it."""
        counts, deployment = self._present.step_counts, self.deployment
        counts.read = counts.measures = True
        loads = LoadTimes(deployment.log.events)
        return {
            model: ModelSignals(
                model,
                [role.role for role in roles],
                rules,
                instances=deployment.instances,
                engines=engines,
                service=self._services[model],
                counts=counts,
                loads=loads,
            )
            for model, roles in self._roles.items()
        }

    def handlers(self) -> Mapping[type, Handler]:
        """Handlers for ticks of the load monitor, loads of parameters, and losses."""
        return {
            Opened: self._opened,
            Loaded: self.deployment.loaded,
            LoadStopped: self.deployment.load_stopped,
            Woke: self._woke,
            LossNotice: self._loss_notice,
            LostHost: self._lost_host,
            LostSsd: self.deployment.lost_ssd,
            LostLink: self.deployment.lost_link,
        }

    def _loss_notice(self, now_ns: int, event: LossNotice, actions: list[Action]) -> None:
        """Handle a loss notice: the load monitor will look at the instance's model."""
        self._idle_models = None
        instance = self._live.get(event.number) if event.what == "replica" else None
        self.deployment.loss_notice(now_ns, event, actions)
        if instance is not None:
            self._active.add(instance.replica.model)
            if not self.ticks.armed:
                self.ticks.arm(now_ns, actions)

    def _lost_host(self, now_ns: int, event: LostHost, actions: list[Action]) -> None:
        self.deployment.lost_host(now_ns, event.host, actions)

    def _opened(self, now_ns: int, event: Opened, actions: list[Action]) -> None:
        """Start the rounds; replicas placed at the start already have their parameters."""
        self.ticks.opened(now_ns, actions)

    @property
    def has_rounds(self) -> bool:
        """Whether the controller needs the ``Opened`` event, to start the rounds."""
        return self.ticks.has_rounds

    def stall_rule(self) -> StallDetector:
        """A rule that knows what can still change here without events from outside."""
        return StallDetector(self)

    def change_counts(self) -> tuple[int, int]:
        """Counts that change whenever a decision is carried out or an instance changes."""
        deployment = self.deployment
        return len(deployment.log.events), sum(deployment.instances.changes.values())

    def expiry_times_ns(self) -> list[int] | None:
        """When time-limited states end: copies in host memory, parameters on free GPUs, scaler's answers.

        None if the scaler does not say until when its answers hold. The first of these times may be in the
        past. If rounds come between the looks of the load monitor, several rounds have to pass.
        """
        answers_ns = self.answers.until_ns()
        if answers_ns is None:
            return None
        deployment = self.deployment
        return [
            *answers_ns,
            *deployment.checked_copies.caches.expiries_ns(),
            *deployment.instances.parked_until_ns(),
            self.ticks.settled_ns(SETTLED_LOOKS),
        ]

    @property
    def prototypes(self) -> Mapping[str, Replica]:
        """A prototype replica of each hosted model."""
        return self._setup.prototypes

    def arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        """A request was admitted: activate its model and the load monitor."""
        model = request.model
        if self._signals:
            self._signals[model].arrived(now_ns, request)
        if model not in self._active:
            bounds = self.answers.no_change_bounds.get(model)
            if bounds is not None and self._services[model].backlog_tokens <= bounds.backlog_tokens:
                return
            self._active.add(model)
            later = self._shortage.wake(model) or self._present.scheduler_lost
            if not later and any(not role.supply for role in self._roles[model]):
                self._idle_models = None
                self._decide(now_ns, model, actions)
        if not self.ticks.armed:
            self.ticks.arm(now_ns, actions)

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """An instance reported; a draining one may be empty now."""
        self._last_ran_ns[replica] = now_ns
        instance = self._live.get(replica)
        if instance is None:
            return
        if replica in self.deployment.drains.drained:
            self.deployment.drains.release_gpus(now_ns, replica, actions)
            if not self.ticks.armed and self.deployment.drains.waits():
                self.ticks.arm(now_ns, actions)
        elif instance.role != "decode" and (model := instance.replica.model) not in self._active:
            # Prompts were computed, so decoding needs memory: more than within the bounds?
            bounds, service = self.answers.no_change_bounds.get(model), self._services[model]
            if bounds is None:
                return
            if service.kv_tokens > bounds.kv_tokens or service.migrating_tokens > bounds.migrating_tokens:
                self._active.add(model)
                if not self.ticks.armed:
                    self.ticks.arm(now_ns, actions)

    def _woke(self, now_ns: int, event: Woke, actions: list[Action]) -> None:
        """Handle a tick: look at the active models if a period of the load monitor has ended."""
        if not self.ticks.woke(now_ns, actions):
            return
        self._idle_models = None
        for model in sorted(self._active) if self._signals else ():
            self._signals[model].scrape(now_ns)
        if not self._present.scheduler_lost:  # it would decide
            self._look_at_models(now_ns, actions)
        if self.deployment.drains.drained:
            self.deployment.drains.reclaim_all(now_ns, actions)
        if self._active or self._shortage.starved or self.deployment.drains.waits():
            self.ticks.arm(now_ns, actions)

    def _look_at_models(self, now_ns: int, actions: list[Action]) -> None:
        """Ask the scaler about each active model, unless its last answer holds."""
        shortage = self._shortage
        for model in shortage.in_turn(
            sorted(self._active),
            lambda: self._any_gpus_obtainable(now_ns),
            lambda name: self._gpus_obtainable(now_ns, name),
        ):
            if shortage.wake(model):
                self._active.add(model)
            elif self._last_answer_holds(now_ns, model):
                continue
            self._look_at(now_ns, model, actions)

    def _look_at(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """Ask the scaler about a model; leave a model without decisions out of later looks."""
        decisions = self._decide(now_ns, model, actions)
        if any(decision.act != "shortage" for decision in decisions):
            self.answers.forget(model)
        else:
            view = self.view(now_ns, model)
            if not decisions and self.answers.names_bounds(view):
                self._active.discard(model)
                return
            if decisions and not self.deployment.instances.of(model) and self.answers.names_bounds(view):
                self._active.discard(model)
                self._shortage.starve(model)
                return
            self.answers.keep(view, self.deployment.instances.changes[model], bool(decisions))
        if self._at_rest(model):
            self._active.discard(model)

    def _last_answer_holds(self, now_ns: int, model: str) -> bool:
        changes = self.deployment.instances.changes[model]
        obtainable = partial(self._gpus_obtainable, now_ns, model)
        return self.answers.holds(now_ns, model, changes, self._services[model], obtainable)

    def _any_gpus_obtainable(self, now_ns: int) -> bool:
        """Whether any model could get GPUs: free ones, or those of another model's idle instance."""
        return self.deployment.instances.has_free() or bool(self._idle(now_ns))

    def _gpus_obtainable(self, now_ns: int, model: str) -> bool:
        instances = self.deployment.instances
        free = instances.spare(model, now_ns) > 0 or bool(instances.parked(model, now_ns))
        return free or bool(self._idle(now_ns))

    def _idle(self, now_ns: int) -> list[ScalingView]:
        """Views of models with an idle instance they may give up; computed once per look and change."""
        if self._idle_models is None:
            instances, services = self.deployment.instances, self._services
            self._idle_models = [
                self.view(now_ns, model)
                for model in instances.models
                if any(
                    instance.state == "serving" and not services[model].outstanding(instance.replica.id)
                    for instance in instances.of(model)
                )
            ]
        return self._idle_models

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Remove a lost instance with its parameters, or lost GPUs that only kept parked parameters."""
        instance = self._live.get(replica)
        if instance is None:
            self.deployment.instances.unpark(replica)
            return
        self._active.add(instance.replica.model)
        self.deployment.lost(now_ns, replica, cause, actions)
        if not self.ticks.armed:
            self.ticks.arm(now_ns, actions)

    def view(self, now_ns: int, model: str) -> ScalingView:
        """The scaler's view of a model."""
        service, limits = self._services[model], self._setup.limits[model]
        return ScalingView(
            now_ns,
            model,
            roles=self._roles[model],
            backlog_tokens=service.backlog_tokens,
            kv_tokens=service.kv_tokens,
            migrating_tokens=service.migrating_tokens,
            prefill_tokens_per_s=limits.prefill_tokens_per_s,
            kv_tokens_per_instance=limits.kv_tokens,
            kv_tokens_per_s=limits.kv_tokens_per_s,
            spare=self.deployment.instances.spare(model, now_ns),
            parked=self.deployment.instances.parked(model, now_ns),
            signals=self._signals[model].of(now_ns) if self._signals else None,
        )

    def _decide(self, now_ns: int, model: str, actions: list[Action]) -> tuple[ScaleDecision, ...]:
        decisions = self._scaler.scale(self.view(now_ns, model))
        self._shortage.update(model, decisions)
        for decision in decisions:
            self._carry_out(now_ns, decision, actions)
        return decisions

    def _carry_out(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        act, deployment, reason = decision.act, self.deployment, decision.reason
        if act != "shortage":
            self._idle_models = None
        if act == "load":
            self._load(now_ns, decision, actions)
        elif act == "shortage":
            self._take_instance(now_ns, decision, actions)
        for number in decision.instances:
            deployment.log.decided(now_ns, decision, number, reason)
            if act == "cancel_drain":
                deployment.drains.cancel(number, actions)
            elif act == "revive":
                deployment.revive(now_ns, number, decision.role, reason, actions)
            elif act == "mutate":
                deployment.switch_role(number, decision.role, reason, actions)
            elif act == "drain":
                deployment.drains.drain(now_ns, number, actions)

    def _load(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        """Start instances, or record why they cannot start."""
        missing = self.deployment.start(now_ns, decision, actions)
        if missing is not None:
            self._record_shortage(now_ns, decision, missing)
        else:
            self._shortage.ended(decision)

    def _record_shortage(self, now_ns: int, decision: ScaleDecision, missing: MissingInstances) -> None:
        """Record a shortage once, not every period."""
        if self._shortage.is_new_shortage(decision, missing):
            why = OBSTACLES[missing.obstacle]
            shortage = f"{missing.count} more {decision.role} instances {why}; {decision.reason}"
            self.deployment.log.short(now_ns, decision, shortage, missing.obstacle)

    def _take_instance(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        """No GPUs are free: ask the arbiter for an instance of another model."""
        model = decision.model
        obstacle: Obstacle = "no_gpu"
        if self.deployment.instances.spare(model, now_ns):  # kept for loads that have failed to begin
            obstacle = self._shortage.obstacle_of_loads(model) or obstacle
        self._record_shortage(now_ns, decision, MissingInstances(decision.count, obstacle))
        if obstacle != "no_gpu":
            return
        idle_models = self._idle(now_ns)
        other_models = [view for view in idle_models if view.model != model]
        taken = self._arbiter(other_models, model) if other_models else None
        if taken is not None:
            self._carry_out(now_ns, taken, actions)
        elif len(other_models) == len(idle_models):
            self._idle_models = []  # no other model would get one either

    def _at_rest(self, model: str) -> bool:
        """Whether only a new request can lead to another decision of the scaler."""
        service = self._services[model]
        if service.backlog_tokens or service.kv_tokens or service.migrating_tokens:
            return False
        if any(role.supply != role.minimum for role in self._roles[model]):
            return False
        return all(instance.state == "serving" for instance in self.deployment.instances.of(model))
