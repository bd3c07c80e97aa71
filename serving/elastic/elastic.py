"""The elastic controller: when it looks at a model, and which policy decides about the model's instances.

Once per period of the load monitor the controller looks at every model about which something has changed. It
looks at a model without instances as soon as a request arrives; docs/contributing/STATES.md has the table.
``serving.elastic.deployment`` carries out what the policies decide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from serving.elastic.deployment import Deployment
from serving.elastic.idle_offers import IdleOffers
from serving.elastic.live_role import LiveRole
from serving.elastic.looks import Looks
from serving.elastic.replica_control import Handler
from serving.elastic.setup import ElasticParts
from serving.elastic.shortage import Shortage
from serving.elastic.signals import ModelSignals, signals_of
from serving.elastic.stall_detection import StallDetector
from serving.elastic.standing_answers import StandingAnswers
from serving.engine.engine import Engine
from serving.engine.load_reports import LoadReports
from serving.protocols.provisioning import MissingInstances
from serving.protocols.scale_answers import CheckedArbiter, CheckedScaler, taken_for
from serving.protocols.scaling import OBSTACLES, Obstacle, ScaleDecision, ScalingView
from serving.services.rounds import Rounds, Ticks
from serving.services.service import Service
from serving.vocabulary.abort import GRACE_OVER
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

Evict = Callable[[int, str, list[Action]], None]
"""Takes all requests from an instance, for a reason."""
SETTLED_LOOKS = 8  # if rounds are more frequent than looks, ticks say little about the monitor's decisions


class Elastic:
    """Asks the scaling policies and lets ``deployment`` carry out their decisions."""

    __slots__ = (
        "_end_requests", "_evict", "_last_ran_ns", "_live", "_offers", "_present", "_roles", "_scaler",
        "_services",
        "_setup", "_shortage", "_signals", "answers", "deployment", "looks", "scales", "ticks", "touched",
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
        end_requests: Callable[[Iterable[int], str], None],
        rounds: Rounds | None = None,
        reports: Mapping[str, LoadReports] = MappingProxyType({}),
        evict: Mapping[str, Evict] = MappingProxyType({}),
    ) -> None:
        """``placed``: replicas that serve from the start; ``place`` gives a replica its engine.

        ``end_requests``: ends requests for a reason, after the event. ``rounds``: when instances are paired.
        ``reports``: load reports by model, if a policy reads them. ``evict``: by model, where requests
        of an instance that may serve no longer are not ended but taken from it.
        """
        self.scales, self._present, self._end_requests = True, present, end_requests
        self._setup, self._evict = parts.setup, evict
        setup = parts.setup
        self._scaler = CheckedScaler(parts.policies.scaler)
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
        self.ticks = Ticks(setup.period_ns, rounds)
        self._shortage = Shortage()
        self.touched = instances.touched  # the controller adds models whose requests have changed
        self.touched.update(setup.limits)
        self.looks = Looks(self._shortage, self.touched)
        self._offers = IdleOffers(
            CheckedArbiter(parts.policies.arbiter),
            instances,
            lambda model, replica: services[model].outstanding(replica) > 0,
            self.view,
        )
        self._last_ran_ns = last_ran_ns
        self.answers = StandingAnswers(self._scaler)
        self._signals: dict[str, ModelSignals] = {}
        if setup.signals is not None:
            self._signals = signals_of(
                setup.signals,
                {model: [role.role for role in roles] for model, roles in self._roles.items()},
                instances=instances,
                engines=engines,
                services=services,
                counts=present.step_counts,
                events=self.deployment.log.events,
            )

    def handlers(self) -> Mapping[type, Handler]:
        """Handlers for ticks of the load monitor, loads of parameters, and losses."""
        return {
            Opened: self._opened,
            Loaded: self._loaded,
            LoadStopped: self._load_stopped,
            Woke: self._woke,
            LossNotice: self._loss_notice,
            LostHost: self._lost_host,
            LostSsd: self.deployment.lost_ssd,
            LostLink: self.deployment.lost_link,
        }

    def _loss_notice(self, now_ns: int, event: LossNotice, actions: list[Action]) -> None:
        """Handle a loss notice: the load monitor will look at the instance's model."""
        instance = self._live.get(event.number) if event.what == "replica" else None
        self.deployment.loss_notice(now_ns, event, actions)
        if instance is not None:
            self.looks.add(instance.replica.model)
            if not self.ticks.armed:
                self.ticks.arm(now_ns, actions)

    def _loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        self.touched.add(self.deployment.model_of(event))
        self.deployment.loaded(now_ns, event, actions)

    def _load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        self.touched.add(self.deployment.model_of(event))
        self.deployment.load_stopped(now_ns, event, actions)

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
        if model not in self.looks.active:
            bounds = self.answers.no_change_bounds.get(model)
            if bounds is not None and self._services[model].backlog_tokens <= bounds.backlog_tokens:
                return
            self.looks.add(model)
            later = self._shortage.wake(model) or self._present.scheduler_lost
            if not later and any(not role.supply for role in self._roles[model]):
                self._decide(now_ns, self.view(now_ns, model), actions)
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
        elif instance.role != "decode" and (model := instance.replica.model) not in self.looks.active:
            # Prompts were computed, so decoding needs memory: more than within the bounds?
            bounds, service = self.answers.no_change_bounds.get(model), self._services[model]
            if bounds is None:
                return
            if service.kv_tokens > bounds.kv_tokens or service.migrating_tokens > bounds.migrating_tokens:
                self.looks.add(model)
                if not self.ticks.armed:
                    self.ticks.arm(now_ns, actions)

    def _woke(self, now_ns: int, event: Woke, actions: list[Action]) -> None:
        """Handle a tick: look at the active models if a period of the load monitor has ended."""
        if self.ticks.has_rounds:
            self.touched.update(self._services)
        if not self.ticks.woke(now_ns, actions):
            return
        for model in sorted(self.looks.active) if self._signals else ():
            self._signals[model].scrape(now_ns)
        if not self._present.scheduler_lost:  # it would decide
            self._look_at_models(now_ns, actions)
        if self.deployment.drains.drained:
            self._end_overdue(now_ns, actions)
            self.deployment.drains.reclaim_all(now_ns, actions)
        if self.looks.active or self._shortage.starved or self.deployment.drains.waits():
            self.ticks.arm(now_ns, actions)

    def _end_overdue(self, now_ns: int, actions: list[Action]) -> None:
        """Empty the instances whose grace period for draining is over."""
        for number in self.deployment.drains.overdue(now_ns):
            evict = self._evict.get(self._live[number].replica.model)
            if evict is None:
                self._end_requests(self.deployment.drains.requests_of(number), GRACE_OVER)
            else:
                evict(number, GRACE_OVER, actions)

    def _look_at_models(self, now_ns: int, actions: list[Action]) -> None:
        """Ask the scaler about each model that has a turn, unless its last answer holds."""
        shortage, looks = self._shortage, self.looks
        for model in looks.in_turn(
            now_ns,
            lambda: self._any_gpus_obtainable(now_ns),
            lambda name: self._gpus_obtainable(now_ns, name),
            self._note,
        ):
            if shortage.wake(model):
                looks.active.add(model)
            elif self._last_answer_holds(now_ns, model):
                looks.answered(model, self.answers.last(model))
                continue
            self._look_at(now_ns, model, actions)

    def _note(self) -> None:
        """Tell those concerned of the models about which something has changed."""
        if self.touched:
            self._offers.touch(self.touched)
            self.looks.note()

    def _look_at(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """Ask the scaler about a model; leave a model without decisions out of later looks."""
        view = self.view(now_ns, model)
        decisions = self._decide(now_ns, view, actions)
        looks, answers = self.looks, self.answers
        if any(decision.act != "shortage" for decision in decisions):
            answers.forget(model)
        else:
            if decisions:
                view = self.view(now_ns, model)  # another model may have given up an instance
            if not decisions and answers.names_bounds(view):
                looks.remove(model)
                return
            if decisions and not self.deployment.instances.of(model) and answers.names_bounds(view):
                looks.remove(model)
                self._shortage.starve(model)
                return
            answers.keep(view, self.deployment.instances.changes[model], bool(decisions))
        if self._at_rest(model):
            looks.remove(model)
        else:
            looks.answered(model, answers.last(model))

    def _last_answer_holds(self, now_ns: int, model: str) -> bool:
        changes = self.deployment.instances.changes[model]
        obtainable = partial(self._gpus_obtainable, now_ns, model)
        return self.answers.holds(now_ns, model, changes, self._services[model], obtainable)

    def _any_gpus_obtainable(self, now_ns: int) -> bool:
        """Whether any model could get GPUs: free ones, or those of an instance that a model gives up."""
        return self.deployment.instances.has_free() or self._offers.is_offered(now_ns)

    def _gpus_obtainable(self, now_ns: int, model: str) -> bool:
        instances = self.deployment.instances
        free = instances.spare(model, now_ns) > 0 or bool(instances.parked(model, now_ns))
        return free or self._offers.is_offered(now_ns, model)

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Remove a lost instance with its parameters, or lost GPUs that only kept parked parameters."""
        instance = self._live.get(replica)
        if instance is None:
            self.deployment.instances.unpark(replica)
            return
        self.looks.add(instance.replica.model)
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

    def _decide(self, now_ns: int, view: ScalingView, actions: list[Action]) -> tuple[ScaleDecision, ...]:
        decisions = self._scaler.scale(view)
        self._shortage.update(view.model, decisions)
        for decision in decisions:
            self._carry_out(now_ns, decision, actions)
        return decisions

    def _carry_out(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        act, deployment, reason = decision.act, self.deployment, decision.reason
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
            elif act == "limit_batch":
                deployment.limit_batch(now_ns, number, decision.count, actions)

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
        """No GPUs are free: take an instance that another model gives up."""
        model = decision.model
        obstacle: Obstacle = "no_gpu"
        if self.deployment.instances.spare(model, now_ns):  # kept for loads that have failed to begin
            obstacle = self._shortage.obstacle_of_loads(model) or obstacle
        self._record_shortage(now_ns, decision, MissingInstances(decision.count, obstacle))
        if obstacle != "no_gpu":
            return
        self._note()
        offer = self._offers.best(now_ns, model)
        if offer is not None:
            self._carry_out(now_ns, taken_for(model, offer), actions)

    def _at_rest(self, model: str) -> bool:
        """Whether only a new request can lead to another decision of the scaler."""
        service = self._services[model]
        if service.backlog_tokens or service.kv_tokens or service.migrating_tokens:
            return False
        if any(role.supply != role.minimum for role in self._roles[model]):
            return False
        return all(instance.state == "serving" for instance in self.deployment.instances.of(model))
