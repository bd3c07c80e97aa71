"""From a wanted number of instances to decisions, as Kubernetes carries them out for every scaler of pods."""

from collections import deque
from typing import Final

from policies.scaling.rules import within
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import Signals

NS_PER_S: Final = 1_000_000_000


class ReplicaCounts:
    """Collects the decisions of one look; roles share the free GPUs in the order in which they are set.

    Roles with fewer instances than their minimum get the others at once, as a ReplicaSet replaces lost pods.
    """

    def __init__(self, view: ScalingView) -> None:
        self._view, self._spare = view, view.spare
        self._made = list[ScaleDecision]()
        self._replaced: dict[str, int] = {}  # instances by role
        for role in view.roles:
            if role.supply < role.minimum:
                self.set(role, role.minimum, f"{role.supply} are left of at least {role.minimum}")
                self._replaced[role.role] = role.minimum - role.supply

    def set(self, role: RoleView, wanted: int, reason: str) -> None:
        """Start or drain instances until ``wanted`` serve or load; bounds of the role apply.

        The youngest instances go first, as a ReplicaSet deletes pods; one that still loads cannot go.
        """
        count = within(role, wanted)
        missing = count - role.supply - self._replaced.get(role.role, 0)
        if missing > 0:
            loads = max(0, min(missing, self._spare))
            self._spare -= loads
            self._add("load", role, loads, reason)
            self._add("shortage", role, missing - loads, reason)
        elif missing < 0:
            serving = [instance.id for instance in role.in_state("serving")]
            gone = tuple(sorted(serving[max(0, len(serving) + missing) :]))
            if gone:
                self._made.append(
                    ScaleDecision(
                        act="drain",
                        model=self._view.model,
                        role=role.role,
                        count=len(gone),
                        instances=gone,
                        reason=reason,
                    )
                )

    def _add(self, act: str, role: RoleView, count: int, reason: str) -> None:
        if count:
            self._made.append(
                ScaleDecision(
                    act="load" if act == "load" else "shortage",
                    model=self._view.model,
                    role=role.role,
                    count=count,
                    instances=(),
                    reason=reason,
                )
            )

    def decisions(self) -> tuple[ScaleDecision, ...]:
        """What was collected."""
        return tuple(self._made)

    def with_first(self) -> tuple[ScaleDecision, ...]:
        """What was collected, and one instance for a role without any while the model has work.

        For rules that multiply the number of instances: Kubernetes replaces a lost pod below the minimum.
        """
        decided = {decision.role for decision in self._made}
        for role in self._view.roles:
            if not role.supply and role.role not in decided and self._view.has_work:
                self.set(role, 1, "requests wait and there is no instance")
        return self.decisions()


def serving_count(role: RoleView) -> int:
    """The instances that take requests."""
    return len(role.in_state("serving"))


def period_ns(name: str, seconds: float) -> int:
    """A period in ns. Raises ValueError if it is not a time."""
    if not 0 < seconds < 86_400:
        raise ValueError(f"{name} is {seconds}, and must be a time above 0 s")
    return round(seconds * NS_PER_S)


def positive(name: str, number: float) -> float:
    """The number. Raises ValueError if it is not above 0."""
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {number}, and must be above 0")
    return number


class HeldCounts:
    """Goes down only to the largest number wanted in the last ``hold_ns`` (HPA's stabilisation window).

    The number at the first look counts as wanted, as the HPA's controller records it first.
    """

    def __init__(self, hold_ns: int) -> None:
        self._hold_ns = hold_ns
        self._wanted: dict[tuple[str, str], deque[tuple[int, int]]] = {}

    def held(self, view: ScalingView, role: RoleView, wanted: int) -> int:
        """The number to set when ``wanted`` instances are wanted now."""
        past = self._wanted.setdefault((view.model, role.role), deque([(view.now_ns, role.supply)]))
        past.append((view.now_ns, wanted))
        while past[0][0] < view.now_ns - self._hold_ns:
            past.popleft()
        return wanted if wanted >= role.supply else min(role.supply, max(count for _, count in past))


class Due:
    """Whether a model's next decision is due: once per period, at multiples of it."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._done_ns: dict[str, int] = {}

    def is_due(self, view: ScalingView) -> bool:
        """True once per period and model."""
        now_ns = view.now_ns // self._period_ns * self._period_ns
        if self._done_ns.get(view.model, 0) >= now_ns:
            return False
        self._done_ns[view.model] = now_ns
        return True

    def signals(self, view: ScalingView) -> Signals | None:
        """The metrics once per period and model; None if no decision is due or there are none yet."""
        return view.signals if self.is_due(view) else None

    def next_ns(self, view: ScalingView) -> int:
        """When the next decision is due: a scaler's ``no_change_until_ns``."""
        return (view.now_ns // self._period_ns + 1) * self._period_ns
