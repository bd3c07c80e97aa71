"""The elastic controller: when it looks at a model, and which policy decides about the model's instances.

Once per period of the load monitor the controller looks at every model that is not at rest. It looks at a
model without instances as soon as a request arrives; docs/STATES.md has the table.
``serving.elastic.deployment`` carries out what the policies decide.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from serving.elastic.deployment import Deployment
from serving.elastic.replica_control import Handler
from serving.elastic.scale_view import LiveRole
from serving.elastic.setup import ElasticParts
from serving.elastic.shortage import Shortage
from serving.elastic.standing_answers import StandingAnswers
from serving.elastic.ticks import Ticks
from serving.engine.engine import Engine
from serving.engine.load_reports import LoadReports
from serving.protocols.provisioning import MissingInstances
from serving.protocols.scale_answers import CheckedScaler, checked_arbiter
from serving.protocols.scaling import OBSTACLES, Obstacle, ScaleDecision, ScalingView
from serving.services.rounds import Rounds
from serving.services.service import Service
from serving.vocabulary.actions import Action
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


class Elastic:
    """Asks the scaling policies and lets ``deployment`` carry out their decisions."""

    __slots__ = (
        "_active", "_arbiter", "_idle_models", "_last_ran_ns", "_live", "_roles", "_scaler", "_services",
        "_setup", "_shortage", "answers", "deployment", "scales", "ticks",
    )  # fmt: skip

    def __init__(
        self,
        parts: ElasticParts,
        placed: Sequence[Replica],
        engines: Mapping[int, Engine],
        services: Mapping[str, Service],
        place: Callable[[Replica, Role, bool], None],
        rounds: Rounds | None = None,
        reports: Mapping[str, LoadReports] = MappingProxyType({}),
    ) -> None:
        """``placed``: replicas that serve from the start; ``place`` gives a replica its engine.

        ``rounds``: when instances are paired. ``reports``: load reports by model, if a policy reads them.
        """
        self.scales = True
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
                    model, role, bounds, instances, services[model], last_ran_ns, (reports or {}).get(model)
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

    @property
    def prototypes(self) -> Mapping[str, Replica]:
        """A prototype replica of each hosted model."""
        return self._setup.prototypes

    def arrived(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """A request was admitted: activate its model and the load monitor."""
        if model not in self._active:
            bounds = self.answers.no_change_bounds.get(model)
            if bounds is not None and self._services[model].backlog_tokens <= bounds.backlog_tokens:
                return
            self._active.add(model)
            if not self._shortage.wake(model) and any(not role.supply for role in self._roles[model]):
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
        shortage = self._shortage
        for model in shortage.in_turn(
            sorted(self._active),
            lambda: self._any_gpus_obtainable(now_ns),
            lambda one: self._gpus_obtainable(now_ns, one),
        ):
            if shortage.wake(model):
                self._active.add(model)
            elif self._last_answer_holds(now_ns, model):
                continue
            self._look_at(now_ns, model, actions)
        if self.deployment.drains.drained:
            self.deployment.drains.reclaim_all(now_ns, actions)
        if self._active or shortage.starved or self.deployment.drains.waits():
            self.ticks.arm(now_ns, actions)

    def _look_at(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """Ask the scaler about a model; leave a model without decisions out of later looks."""
        decisions = self._decide(now_ns, model, actions)
        if any(one.act != "shortage" for one in decisions):
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
                    one.state == "serving" and not services[model].outstanding(one.replica.id)
                    for one in instances.of(model)
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
            self._roles[model],
            service.backlog_tokens,
            service.kv_tokens,
            service.migrating_tokens,
            limits.prefill_tokens_per_s,
            limits.kv_tokens,
            limits.kv_tokens_per_s,
            self.deployment.instances.spare(model, now_ns),
            self.deployment.instances.parked(model, now_ns),
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
            self._take(now_ns, decision, actions)
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
            what = f"{missing.count} more {decision.role} instances {why}; {decision.reason}"
            self.deployment.log.short(now_ns, decision, what, missing.obstacle)

    def _take(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        """No GPUs are free: ask the arbiter for an instance of another model."""
        model = decision.model
        obstacle: Obstacle = "no_gpu"
        if self.deployment.instances.spare(model, now_ns):  # kept for loads that have failed to begin
            obstacle = self._shortage.obstacle_of_loads(model) or obstacle
        self._record_shortage(now_ns, decision, MissingInstances(decision.count, obstacle))
        if obstacle != "no_gpu":
            return
        idle_models = self._idle(now_ns)
        others = [view for view in idle_models if view.model != model]
        taken = self._arbiter(others, model) if others else None
        if taken is not None:
            self._carry_out(now_ns, taken, actions)
        elif len(others) == len(idle_models):
            self._idle_models = []  # no other model would get one either

    def _at_rest(self, model: str) -> bool:
        """Whether only a new request can lead to another decision of the scaler."""
        service = self._services[model]
        if service.backlog_tokens or service.kv_tokens or service.migrating_tokens:
            return False
        if any(role.supply != role.minimum for role in self._roles[model]):
            return False
        return all(one.state == "serving" for one in self.deployment.instances.of(model))
