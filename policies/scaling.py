"""How many instances a model needs, by BlitzScale's load monitor.

OSDI 2025, section 5.3, has the idea; rules and constants are those its authors ship. Each rule asks how many
instances a load wants at an upper and at a lower bound of load per instance. More are started when even the
upper bound is passed; one is let go when the lower one has not been reached for a while.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

from serving.scaling import Act, InstanceView, Role, RoleView, ScaleDecision, ScalingView

LinkRule = Literal["shipped", "linear"]

ROLE_ORDER: tuple[Role, ...] = ("prefill", "both", "decode")
ALL_WAYS: tuple[Act, ...] = ("cancel_drain", "revive", "mutate")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Load per instance: below ``lower`` fewer would do, above ``upper`` more are needed."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not 0 < self.lower <= self.upper < float("inf"):
            raise ValueError("scaling bounds need 0 < lower <= upper")


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """``prefill`` and ``link`` in seconds of backlog per instance, ``memory`` as a share of KV memory.

    ``link_rule``: ``shipped`` divides the migrating tokens by what all present decode instances take in, so
    it asks for few when many are there; ``linear`` by what one takes in. ``down_after_ns``: how long fewer
    must do before one goes, and again before the next. ``prescale_from``: prefill growing by this many
    starts ``prescale_by`` decode instances as well (0: never; the sources do not say how many, so 1).
    ``ways``: what is tried before parameters are loaded, always in the order of ``ALL_WAYS``.
    """

    prefill: Bounds = Bounds(0.5, 0.7)
    memory: Bounds = Bounds(0.75, 0.95)
    link: Bounds = Bounds(0.4, 0.8)
    link_rule: LinkRule = "shipped"
    down_after_ns: int = 333_000_000
    prescale_from: int = 1
    prescale_by: int = 1
    ways: tuple[Act, ...] = ALL_WAYS

    def __post_init__(self) -> None:
        if self.down_after_ns < 0 or self.prescale_from < 0 or self.prescale_by < 0:
            raise ValueError("scaling rules need down_after_ns, prescale_from and prescale_by >= 0")
        if self.link_rule not in ("shipped", "linear") or not set(self.ways) <= set(ALL_WAYS):
            raise ValueError(f"link_rule is shipped or linear, and ways are some of {', '.join(ALL_WAYS)}")


@dataclass(frozen=True, slots=True)
class Need:
    """Fewest instances that carry the load, and the most that it keeps busy."""

    least: int
    most: int
    why: str


def prefill_need(backlog_tokens: int, tokens_per_s: float, bounds: Bounds) -> Need:
    """Instances that work off the backlog within ``upper`` and within ``lower`` seconds."""
    return _need(backlog_tokens, _exact(tokens_per_s), bounds, "prompt tokens")


def memory_need(kv_tokens: int, tokens_per_instance: int, bounds: Bounds) -> Need:
    """Instances whose KV memory is filled to ``upper`` and to ``lower``."""
    return _need(kv_tokens, Fraction(tokens_per_instance), bounds, "KV tokens")


def link_need(
    migrating_tokens: int, tokens_per_s: float, bounds: Bounds, rule: LinkRule, decode: int
) -> Need:
    """Decode instances that take the migrating KV within ``upper`` and ``lower`` seconds.

    ``decode``: how many there are, which ``shipped`` multiplies the rate by (at least 1).
    """
    rate = _exact(tokens_per_s) * (max(decode, 1) if rule == "shipped" else 1)
    return _need(migrating_tokens, rate, bounds, "KV tokens to move")


def _need(amount: int, per_instance: Fraction, bounds: Bounds, what: str) -> Need:
    assert amount >= 0 < per_instance, "a load is not negative, and an instance does something"
    least, most = (ceil(amount / (_exact(bound) * per_instance)) for bound in (bounds.upper, bounds.lower))
    return Need(least, most, f"{amount} {what}")


def _exact(number: float) -> Fraction:
    """The decimal as it was written: 0.7 is 7/10, so that a load at the bound is not above it by rounding."""
    return Fraction(repr(float(number)))


def need_of(view: ScalingView, role: RoleView, rules: ScalingRules) -> Need:
    """The largest of the role's needs; while there is any work at least one instance of each role."""
    needs = []
    if role.role != "decode":
        needs.append(prefill_need(view.backlog_tokens, view.prefill_tokens_per_s, rules.prefill))
    if role.role != "prefill":
        needs.append(memory_need(view.kv_tokens, view.kv_tokens_per_instance, rules.memory))
    if role.role == "decode":
        args = view.migrating_tokens, view.kv_tokens_per_s, rules.link, rules.link_rule, role.supply
        needs.append(link_need(*args))
    floor = int(view.has_work)
    return Need(
        max(floor, *(need.least for need in needs)),
        max(floor, *(need.most for need in needs)),
        ", ".join(need.why for need in needs),
    )


@dataclass(frozen=True, slots=True)
class _Want:
    """How many instances of a role there shall be, ``keep`` of which have work or are configured."""

    view: RoleView
    count: int
    keep: int
    reason: str

    @property
    def growth(self) -> int:
        return self.count - self.view.supply


class LoadMonitor:
    """BlitzScale's scaling policy for every model, each with rules of its own where ``of_model`` names it.

    Its only memory is since when a role has been below its lower bound, by the time of the views.
    """

    def __init__(self, rules: ScalingRules, of_model: Mapping[str, ScalingRules] | None = None) -> None:
        self._rules = rules
        self._of_model = dict(of_model or {})
        self._below_since_ns: dict[tuple[str, Role], int] = {}

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """What is there already, then loads and what is short (prefill first), then drains."""
        rules = self._of_model.get(view.model, self._rules)
        roles = sorted(view.roles, key=lambda role: ROLE_ORDER.index(role.role))
        wants = [self._want(view, role, rules) for role in roles]
        return _Supply(view, rules).decide(_prescaled(wants, rules))

    def _want(self, view: ScalingView, role: RoleView, rules: ScalingRules) -> _Want:
        need, supply = need_of(view, role, rules), role.supply
        least, most = _within(role, need.least), _within(role, need.most)
        reason = f"{need.why} want {need.least} to {need.most} {role.role} instances, {supply} in supply"
        count = supply
        if least > supply:
            count = _within(role, (need.least + need.most + 1) // 2)
        if most >= supply:
            self._below_since_ns.pop((view.model, role.role), None)
        elif self._waited(view, role.role, rules.down_after_ns):
            count = supply - 1
        return _Want(role, count, min(most, supply), reason)

    def _waited(self, view: ScalingView, role: Role, down_after_ns: int) -> bool:
        key = (view.model, role)
        if view.now_ns - self._below_since_ns.setdefault(key, view.now_ns) < down_after_ns:
            return False
        self._below_since_ns[key] = view.now_ns
        return True


def _within(role: RoleView, count: int) -> int:
    return max(role.minimum, min(role.maximum, count))


def _prescaled(wants: list[_Want], rules: ScalingRules) -> list[_Want]:
    """Prefill that grows much will soon hand its requests on: decode grows with it."""
    growth = max((want.growth for want in wants if want.view.role == "prefill"), default=0)
    if not 0 < rules.prescale_from <= growth:
        return wants
    return [_grown(want, growth, rules.prescale_by) if want.view.role == "decode" else want for want in wants]


def _grown(want: _Want, prefill_growth: int, by: int) -> _Want:
    count = _within(want.view, want.view.supply + by)
    if count <= want.count:
        return want
    return _Want(want.view, count, want.keep, f"prefill grows by {prefill_growth}; {want.reason}")


class _Supply:
    """Where the wanted instances of one decision come from."""

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
        """Draining instances, then parked ones; returns how many are still missing."""
        missing = max(want.growth, 0)
        if "cancel_drain" in self._ways:
            ids = [one.id for one in want.view.in_state("draining")][:missing]
            missing -= self._name("cancel_drain", want.view.role, ids, want.reason)
        if "revive" in self._ways:
            ids, self._parked = self._parked[:missing], self._parked[missing:]
            missing -= self._name("revive", want.view.role, ids, want.reason)
        return missing

    def _mutate(self, wants: dict[Role, _Want], missing: dict[Role, int]) -> int:
        """Turn prefill instances to decoding: first those prefill does not need, then those it can replace.

        One that serves prefill always stays. A replacement is a load like any other, so it needs free GPUs.
        """
        if "mutate" not in self._ways or not {"prefill", "decode"} <= wants.keys():
            return 0
        prefill, decode = wants["prefill"], wants["decode"]
        surplus = prefill.view.supply - prefill.keep
        movable = _least_busy(prefill.view)[:-1]
        replaced = max(self._spare - missing["prefill"], 0)
        ids = [one.id for one in movable[: min(missing["decode"], surplus + replaced)]]
        missing["decode"] -= self._name("mutate", "decode", ids, decode.reason)
        missing["prefill"] += max(len(ids) - surplus, 0)
        return len(ids)

    def _load(self, want: _Want, missing: int) -> None:
        loads = min(missing, self._spare)
        self._spare -= loads
        reason = want.reason if want.growth > 0 else f"in place of those that decode now; {want.reason}"
        self._count("load", want.view.role, loads, reason)
        self._count("short", want.view.role, missing - loads, reason)

    def _drain(self, want: _Want) -> None:
        ids = [one.id for one in _may_go(want.view)[:1]]
        self._name("drain", want.view.role, ids, want.reason)

    def _count(self, act: Act, role: Role, count: int, reason: str) -> None:
        if count:
            self._made.append(ScaleDecision(act, self._model, role, count, (), reason))

    def _name(self, act: Act, role: Role, ids: list[int], reason: str) -> int:
        if ids:
            self._made.append(ScaleDecision(act, self._model, role, len(ids), tuple(ids), reason))
        return len(ids)


def _least_busy(role: RoleView) -> list[InstanceView]:
    """Serving instances: fewest requests first, then those idle longest, then by id."""

    def rank(one: InstanceView) -> tuple[int, bool, int, int]:
        return one.outstanding, one.idle_since_ns is None, one.idle_since_ns or 0, one.id

    return sorted(role.in_state("serving"), key=rank)


def _may_go(role: RoleView) -> list[InstanceView]:
    """Who may drain, the least busy first: while others load, not the only one that serves."""
    serving = _least_busy(role)
    return [] if len(serving) == 1 and role.in_state("loading") else serving


def instance_to_take(
    views: Sequence[ScalingView], wanting: str, rules: Mapping[str, ScalingRules]
) -> ScaleDecision | None:
    """The instance another model may give up for ``wanting``, as its drain; None when none can.

    It is idle, and of the role in which its model has most instances beyond its need; of those the one idle
    longest. ``rules`` by model. Ties go by model, role and id.
    """
    found = []
    for view in views:
        for role in view.roles if view.model != wanting else ():
            slack = role.supply - _within(role, need_of(view, role, rules[view.model]).most)
            idle = [one for one in _may_go(role) if one.idle_since_ns is not None]
            found += [(-slack, one.idle_since_ns, view.model, role.role, one.id) for one in idle if slack > 0]
    if not found:
        return None
    slack, _, model, role_name, taken = min(found)
    reason = f"{wanting} is short, and {model} has {-slack} more than it needs"
    return ScaleDecision("drain", model, role_name, 1, (taken,), reason)
