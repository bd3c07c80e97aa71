"""How many instances a model has, by BlitzScale's load monitor (OSDI 2025, section 5.3, as shipped).

It starts instances when the load exceeds even a rule's upper bound. It drains one when the load has been
under the lower bound for a while. The rules are in ``policies.scaling.rules``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor, inf

from policies.scaling.rules import (
    ALL_WAYS,
    ROLE_ORDER,
    Bounds,
    Need,
    ScalingRules,
    exact,
    link_rate,
    need_of,
    scaling_rules,
    within,
)
from serving.protocols.scaling import (
    Act,
    InstanceView,
    NoChangeBounds,
    Offer,
    RoleView,
    ScaleDecision,
    ScalingView,
)
from serving.vocabulary.fact import fact
from serving.vocabulary.replica import Role

# Ranges of load in which a role of a given size neither grows nor shrinks, so the rules can be skipped.
# A need is a ceiling of load over rate, so each bound of "this many instances are enough" is one integer
# per load. The bounds are computed once per supply and compared at every call.


class Band:
    """The loads at which a role needs neither more nor fewer instances, at this supply and these rates.

    The role does not grow while every load is at most its ``high``, and does not shrink while any load is at
    least its ``low``. In the order backlog, KV, migrating tokens.
    """

    __slots__ = (
        "high_backlog", "high_kv", "high_migrating", "kv_tokens_per_instance", "kv_tokens_per_s",
        "low_backlog", "low_kv", "low_migrating", "maximum", "minimum", "prefill_tokens_per_s", "supply",
    )  # fmt: skip

    def __init__(self, view: ScalingView, role: RoleView, rules: ScalingRules) -> None:
        self.supply, self.minimum, self.maximum = role.supply, role.minimum, role.maximum
        self.prefill_tokens_per_s = view.prefill_tokens_per_s
        self.kv_tokens_per_instance = view.kv_tokens_per_instance
        self.kv_tokens_per_s = view.kv_tokens_per_s
        link = link_rate(view.kv_tokens_per_s, rules.link_rule, self.supply)
        serves_prefill, serves_decode = role.role != "decode", role.role != "prefill"
        hands_over = role.role == "decode"
        self.low_backlog, self.high_backlog = self._edges(
            exact(view.prefill_tokens_per_s), rules.prefill, serves_prefill
        )
        self.low_kv, self.high_kv = self._edges(
            Fraction(view.kv_tokens_per_instance), rules.memory, serves_decode
        )
        self.low_migrating, self.high_migrating = self._edges(link, rules.link, hands_over)

    def _edges(self, per_instance: Fraction, bounds: Bounds, counts: bool) -> tuple[float, float]:
        """(low, high) of one load; ``counts``: the role has a rule for it."""
        supply = self.supply
        if not self.minimum <= supply <= self.maximum:
            return inf, -inf  # out of its own bounds: always evaluate the rules
        low, high = inf, inf
        if counts:
            low = floor(exact(bounds.lower) * per_instance * (supply - 1)) + 1
            high = floor(exact(bounds.upper) * per_instance * supply)
        elif supply <= 1:  # any work needs one instance, and is enough to keep it
            low, high = supply, inf if supply else 0
        if supply == self.minimum:
            low = 0
        return low, inf if supply == self.maximum else high

    def fits(self, view: ScalingView, role: RoleView) -> bool:
        """Whether the band was made for these limits and rates; the caller must check the supply."""
        return (
            self.minimum == role.minimum
            and self.maximum == role.maximum
            and self.prefill_tokens_per_s == view.prefill_tokens_per_s
            and self.kv_tokens_per_instance == view.kv_tokens_per_instance
            and self.kv_tokens_per_s == view.kv_tokens_per_s
        )


_Alike = tuple[Role, int, int, int, float, int, float]
"""What a band follows from beside the rules: role, supply, its bounds, and the rates of ``ScalingView``."""


class RoleMemory:
    """What a load monitor remembers of one role of one model; ``below_since_ns``: None if not below.

    ``bands``: load bands by supply; they are kept because an elastic role returns to few supplies often.
    ``known``: bands of all models with the same rules, which are alike where models are.
    """

    __slots__ = ("bands", "below_since_ns", "known")

    def __init__(self, known: dict[_Alike, Band]) -> None:
        self.bands: dict[int, Band] = {}
        self.known = known
        self.below_since_ns: int | None = None

    def learn(self, view: ScalingView, role: RoleView, supply: int, rules: ScalingRules) -> None:
        """Keep the band for the present supply; compute it if no model like this one has it."""
        band = self.bands.get(supply)
        if band is None or not band.fits(view, role):
            rates = view.prefill_tokens_per_s, view.kv_tokens_per_instance, view.kv_tokens_per_s
            alike = role.role, supply, role.minimum, role.maximum, *rates
            band = self.known.get(alike)
            if band is None:
                band = self.known[alike] = Band(view, role, rules)
            self.bands[supply] = band

    def is_quiet(self, view: ScalingView, role: RoleView, down_after_ns: int) -> bool:
        """Whether the role needs no decision; if so, ``below_since_ns`` is up to date."""
        band = self.bands.get(role.supply)
        if (
            band is None
            or view.backlog_tokens > band.high_backlog
            or view.kv_tokens > band.high_kv
            or view.migrating_tokens > band.high_migrating
            or not band.fits(view, role)
        ):
            return False
        if (
            view.backlog_tokens >= band.low_backlog
            or view.kv_tokens >= band.low_kv
            or view.migrating_tokens >= band.low_migrating
        ):
            self.below_since_ns = None
            return True
        since_ns = self.below_since_ns
        return since_ns is not None and view.now_ns - since_ns < down_after_ns


_NEVER_NS = 1 << 62


@fact
class _Want:
    """The wanted number of instances of a role; ``keep`` of them have work or are configured.

    ``need``: why; ``because``: put before it. ``ahead``: how many of them serve expected load only.
    """

    view: RoleView
    supply: int
    count: int
    keep: int
    need: Need
    because: str = ""
    ahead: int = 0

    @property
    def growth(self) -> int:
        return self.count - self.supply

    @property
    def reason(self) -> str:
        need, role = self.need, self.view.role
        wanted = f"{need.why} want {need.least} to {need.most} {role} instances"
        return f"{self.because}{wanted}, {self.supply} in supply"


class LoadMonitor:
    """BlitzScale's scaling policy for every model; ``of_model`` gives a model its own rules.

    It remembers since when a role has been below its lower bound, by the time of the views. With ``fast`` it
    also keeps the loads between which no decision is needed, which changes no decision.
    """

    def __init__(
        self, rules: ScalingRules, of_model: Mapping[str, ScalingRules] | None = None, fast: bool = True
    ) -> None:
        self._rules = rules
        self._of_model = dict(of_model or {})
        self._fast = fast
        self._memories: dict[str, dict[Role, RoleMemory]] = {}
        self._bands: dict[ScalingRules, dict[_Alike, Band]] = {}

    def rules_of(self, model: str) -> ScalingRules:
        """The rules of this model."""
        return self._of_model.get(model, self._rules)

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Use instances that exist, then load or report a shortage (prefill first), then drain."""
        rules = self._of_model.get(view.model, self._rules)
        memories = self._memories.get(view.model)
        if memories is None:
            known = self._bands.setdefault(rules, {})
            memories = self._memories[view.model] = {name: RoleMemory(known) for name in ROLE_ORDER}
        for role in view.roles:
            if not memories[role.role].is_quiet(view, role, rules.down_after_ns):
                break
        else:
            return ()
        roles = {role.role: role for role in view.roles}
        wants = [self._want(view, roles[name], rules, memories[name]) for name in ROLE_ORDER if name in roles]
        if all(want.count == want.supply for want in wants):
            return ()
        return _Supply(view, rules).decide(_prescaled(wants, rules))

    def no_change_bounds(self, view: ScalingView) -> NoChangeBounds | None:
        """At the minimum of instances none can be drained, so only more load changes a decision.

        The same holds if there is no instance and none can be had: none can go, and no load can shrink.
        """
        if not view.spare and not view.parked and not any(_instances(role) for role in view.roles):
            return NoChangeBounds(view.backlog_tokens, view.kv_tokens, view.migrating_tokens)
        memories = self._memories.get(view.model)
        bands = []
        for role in view.roles if memories is not None else ():
            band = memories[role.role].bands.get(role.supply)  # type: ignore[index]
            if band is None or role.supply != role.minimum or not band.fits(view, role):
                return None
            bands.append(band)
        if not bands:
            return None
        return NoChangeBounds(
            min(band.high_backlog for band in bands),
            min(band.high_kv for band in bands),
            min(band.high_migrating for band in bands),
        )

    def no_change_until_ns(self, view: ScalingView) -> int:
        """The end of the wait if a role is below its bound; else no change without new load."""
        memories = self._memories[view.model]
        down_after_ns = self.rules_of(view.model).down_after_ns
        waits_ns = [memories[role.role].below_since_ns for role in view.roles]
        ends_ns = [since_ns + down_after_ns for since_ns in waits_ns if since_ns is not None]
        return min(ends_ns, default=_NEVER_NS)

    def _want(self, view: ScalingView, role: RoleView, rules: ScalingRules, memory: RoleMemory) -> _Want:
        need, supply = need_of(view, role, rules), role.supply
        if self._fast:
            memory.learn(view, role, supply, rules)
        least, most = within(role, need.least), within(role, need.most)
        count = supply
        if least > supply:
            count = within(role, (need.least + need.most + 1) // 2)
        if most >= supply:
            memory.below_since_ns = None
        elif _waited(memory, view.now_ns, rules.down_after_ns):
            count = supply - 1
        return _Want(role, supply, count, min(most, supply), need)


def load_monitor(
    *,
    prefill: Sequence[float] = (0.5, 0.7),
    memory: Sequence[float] = (0.75, 0.95),
    link: Sequence[float] = (0.4, 0.8),
    link_rule: str = "shipped",
    scale_down_ms: float = 333,
    prescale_from: int = 1,
    prescale_by: int = 1,
    ways: Sequence[str] = ALL_WAYS,
) -> LoadMonitor:
    """A load monitor from the plain values of a configuration, the same rules for every model.

    Raises ValueError: one sentence that names the key. ``policies.scaling.rules.scaling_rules`` reads the
    keys.
    """
    return LoadMonitor(
        scaling_rules(
            prefill=prefill,
            memory=memory,
            link=link,
            link_rule=link_rule,
            scale_down_ms=scale_down_ms,
            prescale_from=prescale_from,
            prescale_by=prescale_by,
            ways=ways,
        )
    )


def _waited(memory: RoleMemory, now_ns: int, down_after_ns: int) -> bool:
    """Whether the role has been below its bound for long enough; if so, the wait starts again."""
    if memory.below_since_ns is None:
        memory.below_since_ns = now_ns
    if now_ns - memory.below_since_ns < down_after_ns:
        return False
    memory.below_since_ns = now_ns
    return True


def _prescaled(wants: list[_Want], rules: ScalingRules) -> list[_Want]:
    """If prefill grows by enough instances, grow decode too: prefill will soon hand its requests on."""
    growth = max((want.growth for want in wants if want.view.role == "prefill"), default=0)
    if not 0 < rules.prescale_from <= growth:
        return wants
    return [_grown(want, growth, rules.prescale_by) if want.view.role == "decode" else want for want in wants]


def _grown(want: _Want, prefill_growth: int, by: int) -> _Want:
    count = within(want.view, want.supply + by)
    if count <= want.count:
        return want
    ahead = count - max(want.count, want.supply)
    because = f"prefill grows by {prefill_growth}; "
    return _Want(want.view, want.supply, count, keep=want.keep, need=want.need, because=because, ahead=ahead)


class _Supply:
    """Chooses where the wanted instances of one decision come from."""

    def __init__(self, view: ScalingView, rules: ScalingRules) -> None:
        self._model = view.model
        self._ways = rules.ways
        self._parked = sorted(view.parked)
        self._spare = view.spare
        self._made: list[ScaleDecision] = []

    def decide(self, wants: Sequence[_Want]) -> tuple[ScaleDecision, ...]:
        missing: dict[Role, int] = {want.view.role: self._from_present(want) for want in wants}
        mutated = self._mutate({want.view.role: want for want in wants}, missing)
        for want in wants:
            self._load(want, missing[want.view.role])
        for want in wants:
            if want.growth < 0 and not (mutated and want.view.role == "prefill"):
                self._drain(want)
        return tuple(self._made)

    def _from_present(self, want: _Want) -> int:
        """Resume draining instances, then revive parked ones; returns how many are still missing."""
        missing = max(want.growth, 0)
        if not missing:
            return 0
        if "cancel_drain" in self._ways:
            ids = [instance.id for instance in want.view.in_state("draining")][:missing]
            missing -= self._name("cancel_drain", want, ids)
        if "revive" in self._ways:
            ids, self._parked = self._parked[:missing], self._parked[missing:]
            missing -= self._name("revive", want, ids)
        return missing

    def _mutate(self, wants: dict[Role, _Want], missing: dict[Role, int]) -> int:
        """Turn prefill instances to decoding: first those prefill does not need, then those it can replace.

        One prefill instance always stays. A replacement is loaded like any other, so it needs free GPUs.
        Decode instances for expected load only are loaded: this hides the load, and prefill keeps what it
        needs now.
        """
        if "mutate" not in self._ways or not {"prefill", "decode"} <= wants.keys():
            return 0
        prefill, decode = wants["prefill"], wants["decode"]
        now = max(missing["decode"] - decode.ahead, 0)
        if not now:
            return 0
        surplus = prefill.supply - prefill.keep
        movable = _least_busy(prefill.view.in_state("serving"))[:-1]
        replaced = max(self._spare - missing["prefill"], 0)
        ids = [instance.id for instance in movable[: min(now, surplus + replaced)]]
        missing["decode"] -= self._name("mutate", decode, ids)
        missing["prefill"] += max(len(ids) - surplus, 0)
        return len(ids)

    def _load(self, want: _Want, missing: int) -> None:
        if not missing:
            return
        loads = min(missing, self._spare)
        self._spare -= loads
        reason = want.reason if want.growth > 0 else f"replaces mutated instances; {want.reason}"
        self._count("load", want.view.role, loads, reason)
        self._count("shortage", want.view.role, missing - loads, reason)

    def _drain(self, want: _Want) -> None:
        ids = [instance.id for instance in _least_busy(_leaving(want.view))[:1]]
        self._name("drain", want, ids)

    def _count(self, act: Act, role: Role, count: int, reason: str) -> None:
        if count:
            self._made.append(
                ScaleDecision(act=act, model=self._model, role=role, count=count, instances=(), reason=reason)
            )

    def _name(self, act: Act, want: _Want, ids: list[int]) -> int:
        if ids:
            self._made.append(
                ScaleDecision(
                    act=act,
                    model=self._model,
                    role=want.view.role,
                    count=len(ids),
                    instances=tuple(ids),
                    reason=want.reason,
                )
            )
        return len(ids)


def _least_busy(instances: list[InstanceView]) -> list[InstanceView]:
    """Fewest requests first, then those idle longest, then by id."""
    if len(instances) < 2:
        return instances

    def rank(instance: InstanceView) -> tuple[int, bool, int, int]:
        return instance.outstanding, instance.idle_since_ns is None, instance.idle_since_ns or 0, instance.id

    return sorted(instances, key=rank)


def _instances(role: RoleView) -> bool:
    """Whether the role has any instance, including draining ones."""
    return bool(role.supply or role.in_state("draining"))


def _leaving(role: RoleView) -> list[InstanceView]:
    """Instances that may drain, by id; while others load, not the only serving one."""
    serving = role.in_state("serving")
    return [] if len(serving) == 1 and role.in_state("loading") else serving


class SurplusArbiter:
    """A model gives up an idle instance of the role in which it has the most instances beyond its need.

    Among these it is the one idle longest. Ties go by role and id. ``rules_of``: the rules of a model.
    """

    def __init__(self, rules_of: Callable[[str], ScalingRules]) -> None:
        self._rules_of = rules_of

    def offer(self, view: ScalingView) -> Offer | None:
        """The instance that the model gives up first; None if it needs all that it has."""
        return min(self._offers(view), default=None)

    def _offers(self, view: ScalingView) -> Iterator[Offer]:
        for role in view.roles:
            if role.supply <= role.minimum:
                continue
            idle = [instance for instance in _leaving(role) if instance.idle_since_ns is not None]
            if not idle:
                continue
            most = need_of(view, role, self._rules_of(view.model)).most
            surplus = role.supply - within(role, most)
            for instance in idle if surplus > 0 else ():
                yield Offer(-surplus, instance.idle_since_ns or 0, view.model, role.role, instance.id)
