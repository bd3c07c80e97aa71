"""Elasticity: when a model is looked at, and who is asked what becomes of its instances.

Once per period of the load monitor every model that is not at rest is looked at; a model without instances at
once, when a request comes. What the policies decide is carried through by ``serving.deployment``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serving.actions import Action, Wake
from serving.cluster_map import ClusterMap
from serving.copies import Copies
from serving.deployment import Deployment
from serving.engine import Engine
from serving.live import LivePolicy
from serving.live_host import LiveSetup
from serving.loads import Loads
from serving.provisioning import Missing, Provisioner
from serving.replica import Replica, Role
from serving.scale_view import LiveRole
from serving.scaling import OBSTACLES, Calm, Obstacle, ScaleDecision, ScaleEvent, Scaler, ScalingView
from serving.service import Service

Arbiter = Callable[[Sequence[ScalingView], str], ScaleDecision | None]


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Bounds (fewest, most) on the instances of one model by role, and the rates of one instance.

    ``pass_ns``: how long a full prefill pass takes. ``size_bytes``: of the parameters, on all GPUs together;
    ``activation_bytes_per_token``: between two layers. ``kv_bytes_per_token``: on all GPUs together;
    ``most_requests``: that decode on one instance. These are for live scaling only.
    """

    bounds: Mapping[Role, tuple[int, int]]
    prefill_tokens_per_s: float
    kv_tokens: int
    kv_tokens_per_s: float
    pass_ns: int
    size_bytes: int = 0
    activation_bytes_per_token: int = 0
    kv_bytes_per_token: int = 0
    most_requests: int = 1 << 30


@dataclass(frozen=True, slots=True)
class ElasticSetup:
    """What is fixed; ``prototypes`` and ``limits`` by model.

    ``period_ns``: of the load monitor. ``park_ns``: how long parameters stay on GPUs that were reclaimed.
    """

    cluster: ClusterMap
    prototypes: Mapping[str, Replica]
    limits: Mapping[str, ModelLimits]
    period_ns: int
    park_ns: int


@dataclass(frozen=True, slots=True)
class ElasticPolicies:
    """Who decides. ``arbiter``: which instance a model may take from another when no GPUs are free.

    ``live``: which new instances work while they load; None: none does.
    """

    scaler: Scaler
    provisioner: Provisioner
    arbiter: Arbiter
    live: LivePolicy | None = None


class Elastic:
    """Asks the policies, and has ``deployment`` carry out what they say."""

    __slots__ = (
        "_active", "_armed", "_ask_calm", "_calm", "_last_ran_ns", "_live", "_policies",
        "_roles", "_services", "_setup", "_short", "deployment",
    )  # fmt: skip

    def __init__(
        self,
        setup: ElasticSetup,
        policies: ElasticPolicies,
        copies: Copies,
        placed: Sequence[Replica],
    ) -> None:
        """``placed``: the replicas that serve from the start."""
        self._setup = setup
        self._policies = policies
        self.deployment = Deployment(
            setup.cluster,
            setup.prototypes,
            policies.provisioner,
            copies,
            placed,
            setup.park_ns,
            {model: limits.pass_ns for model, limits in setup.limits.items()},
            {model: limits.size_bytes for model, limits in setup.limits.items()},
        )
        self._live = self.deployment.instances.live
        self._services: Mapping[str, Service] = {}
        self._roles: dict[str, tuple[LiveRole, ...]] = {}
        self._active: set[str] = set()  # models that are not at rest
        self._armed = False
        # (model, role, act) -> instances it could not get, and why
        self._short: dict[tuple[str, str, str], Missing] = {}
        self._last_ran_ns = self.deployment.active_ns
        self._calm: dict[str, Calm] = {}
        self._ask_calm: Callable[[ScalingView], Calm | None] | None = getattr(policies.scaler, "calm", None)

    def connect(
        self,
        engines: dict[int, Engine],
        services: Mapping[str, Service],
        loads: Loads,
        place: Callable[[Replica, Role, bool], None],
    ) -> None:
        """The controller's own books, which this works on; ``place`` makes the engine of a seat."""
        self.deployment.connect(engines, services, loads, place)
        self._services = services
        instances, last_ran_ns = self.deployment.instances, self._last_ran_ns
        for model, limits in self._setup.limits.items():
            self._roles[model] = tuple(
                LiveRole(model, role, bounds, instances, services[model], last_ran_ns)
                for role, bounds in limits.bounds.items()
            )

    @property
    def prototypes(self) -> Mapping[str, Replica]:
        """What a replica of each hosted model is like."""
        return self._setup.prototypes

    def live_setup(self, model: str) -> LiveSetup | None:
        """What live scaling of a model needs to know; None without it."""
        live, limits = self._policies.live, self._setup.limits[model]
        if live is None:
            return None
        layers = len(self._setup.prototypes[model].layers)
        return LiveSetup(
            live,
            layers,
            limits.activation_bytes_per_token,
            limits.prefill_tokens_per_s,
            limits.kv_bytes_per_token,
            limits.most_requests,
        )

    def arrived(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """A request was let in."""
        if model not in self._active:
            calm = self._calm.get(model)
            if calm is not None and self._services[model].backlog_tokens <= calm.backlog_tokens:
                return
            self._active.add(model)
            if any(not role.supply for role in self._roles[model]):
                self._decide(now_ns, model, actions)
        if not self._armed:
            self._arm(now_ns, actions)

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """An instance reported; one that drains may be empty now."""
        self._last_ran_ns[replica] = now_ns
        instance = self._live.get(replica)
        if instance is None:
            return
        if replica in self.deployment.drained:
            self.deployment.reclaim(now_ns, replica, actions)
            if not self._armed and self.deployment.waits():
                self._arm(now_ns, actions)
        elif instance.role != "decode" and (model := instance.replica.model) not in self._active:
            # Prompts were computed, so memory of decoding is wanted: more than what lets a model be?
            calm, service = self._calm.get(model), self._services[model]
            if calm is None:
                return
            if service.kv_tokens > calm.kv_tokens or service.migrating_tokens > calm.migrating_tokens:
                self._active.add(model)
                if not self._armed:
                    self._arm(now_ns, actions)

    def woke(self, now_ns: int, actions: list[Action]) -> None:
        """A period of the load monitor is over."""
        self._armed = False
        for model in sorted(self._active):
            decided = self._decide(now_ns, model, actions)
            if (not decided and self._is_calm(now_ns, model)) or self._at_rest(model):
                self._active.discard(model)
        if self.deployment.drained:
            self.deployment.reclaim_drained(now_ns, actions)
        if self._active or self.deployment.waits():
            self._arm(now_ns, actions)

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """An instance is gone with its parameters."""
        self._active.add(self.deployment.instances.live[replica].replica.model)
        self.deployment.lost(now_ns, replica, cause, actions)
        if not self._armed:
            self._arm(now_ns, actions)

    def view(self, now_ns: int, model: str) -> ScalingView:
        """What the scaler sees of a model."""
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

    def _is_calm(self, now_ns: int, model: str) -> bool:
        """Whether the scaler lets the model be until a load is above some bound, which is kept."""
        ask = self._ask_calm
        calm = None if ask is None else ask(self.view(now_ns, model))
        if calm is None:
            self._calm.pop(model, None)
            return False
        self._calm[model] = calm
        return True

    def _decide(self, now_ns: int, model: str, actions: list[Action]) -> bool:
        decisions = self._policies.scaler.scale(self.view(now_ns, model))
        if self._short:
            self._no_longer_short(model, decisions)
        for decision in decisions:
            self._carry_out(now_ns, decision, actions)
        return bool(decisions)

    def _carry_out(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        act, deployment, reason = decision.act, self.deployment, decision.reason
        if act == "load":
            self._load(now_ns, decision, actions)
        elif act == "short":
            self._take(now_ns, decision, actions)
        for number in decision.instances:
            deployment.note(now_ns, act, number, reason, decision)
            if act == "cancel_drain":
                deployment.cancel_drain(number, actions)
            elif act == "revive":
                deployment.revive(now_ns, number, decision.role, reason, actions)
            elif act == "mutate":
                deployment.turn(number, decision.role, reason, actions)
            elif act == "drain":
                deployment.drain(now_ns, number, actions)

    def _load(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        """Instances come, or it is told why they do not."""
        missing = self.deployment.start(now_ns, decision, actions)
        if missing is not None:
            self._tell_short(now_ns, decision, missing)
        elif self._short:
            self._short.pop((decision.model, decision.role, "load"), None)

    def _tell_short(self, now_ns: int, decision: ScaleDecision, missing: Missing) -> None:
        """Once, not every period."""
        model, role, reason = decision.model, decision.role, decision.reason
        if self._short.get((model, role, decision.act)) != missing:
            self._short[model, role, decision.act] = missing
            what = f"{missing.count} more {role} instances {OBSTACLES[missing.obstacle]}; {reason}"
            event = ScaleEvent(now_ns, "short", model, role, -1, what, missing.obstacle)
            self.deployment.history.append(event)

    def _obstacle(self, now_ns: int, model: str) -> Obstacle:
        """Why the scaler sees no GPUs: all are taken, or kept for loads that could not begin."""
        if self.deployment.instances.spare(model, now_ns):
            for (other, _, act), missing in self._short.items():
                if other == model and act == "load":
                    return missing.obstacle
        return "no_gpu"

    def _take(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> None:
        """No GPUs are free: another model may have an instance too many."""
        model = decision.model
        obstacle = self._obstacle(now_ns, model)
        self._tell_short(now_ns, decision, Missing(decision.count, obstacle))
        if obstacle != "no_gpu":
            return
        live = self.deployment.instances.live.values()
        others = sorted({one.replica.model for one in live} - {model})
        if others:
            taken = self._policies.arbiter([self.view(now_ns, other) for other in others], model)
            if taken is not None:
                self._carry_out(now_ns, taken, actions)

    def _no_longer_short(self, model: str, decisions: Sequence[ScaleDecision]) -> None:
        short = {(one.model, one.role, one.act) for one in decisions if one.act in ("short", "load")}
        for key in [key for key in self._short if key[0] == model and key not in short]:
            del self._short[key]

    def _arm(self, now_ns: int, actions: list[Action]) -> None:
        period_ns = self._setup.period_ns
        self._armed = True
        actions.append(Wake((now_ns // period_ns + 1) * period_ns, "load monitor"))

    def _at_rest(self, model: str) -> bool:
        """Whether only a new request can make the scaler want something."""
        service = self._services[model]
        if service.backlog_tokens or service.kv_tokens or service.migrating_tokens:
            return False
        if any(role.supply != role.minimum for role in self._roles[model]):
            return False
        return all(one.state == "serving" for one in self.deployment.instances.of(model))
