"""Asks a scaler, and an arbiter between models, and checks their answers against what they were shown."""

from collections.abc import Sequence
from math import isnan
from typing import Any, Final, NoReturn

from serving.protocols.policy_faults import Question, ask, refused, shown, wrong_reason
from serving.protocols.scaling import (
    Arbiter,
    InstanceState,
    NoChangeBounds,
    Offer,
    RoleView,
    ScaleDecision,
    Scaler,
    ScalingView,
)
from serving.vocabulary.replica import Role

ACTS: Final = ("cancel_drain", "revive", "mutate", "load", "drain", "limit_batch", "shortage")
SCALE: Final = Question(
    "scale",
    "a tuple of ScaleDecision, empty if nothing changes: each with the view's model and one of its roles, "
    f"act {', '.join(ACTS[:-1])} or {ACTS[-1]}, count 1 or more and within the role's minimum and maximum, "
    "instances empty for load and shortage, otherwise `count` instances (of limit_batch any number), each "
    "once and in the state that the act applies to, reason a str that is not empty",
)
BOUNDS: Final = Question("no_change_bounds", "None, or a NoChangeBounds of three numbers")
UNTIL: Final = Question("no_change_until_ns", "an int: a time in ns")
OFFER: Final = Question(
    "offer", "None, or an Offer of a serving instance without requests of the view's model, above its minimum"
)
# The state in which an instance must be for the act.
_FROM: Final[dict[str, InstanceState]] = {
    "cancel_drain": "draining", "mutate": "serving", "drain": "serving", "limit_batch": "serving",
}  # fmt: skip


class CheckedScaler:
    """A scaler whose answers are checked; a ``no_change_...`` method that it lacks is None here."""

    __slots__ = ("_scaler", "no_change_bounds", "no_change_until_ns")

    def __init__(self, scaler: Scaler) -> None:
        self._scaler = scaler
        self.no_change_bounds = self._no_change_bounds if hasattr(scaler, "no_change_bounds") else None
        self.no_change_until_ns = self._no_change_until_ns if hasattr(scaler, "no_change_until_ns") else None

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Return the checked answer. Raises PolicyError."""
        answer = ask(self._scaler, SCALE, view)
        if type(answer) is not tuple:
            raise refused(
                self._scaler, SCALE, answer, f"the answer is a {type(answer).__name__}, not a tuple"
            )
        if answer:
            _Check(self._scaler, SCALE, view).decisions(answer)
        return answer

    def _no_change_bounds(self, view: ScalingView) -> NoChangeBounds | None:
        answer = ask(self._scaler, BOUNDS, view)
        if answer is None:
            return None
        if type(answer) is NoChangeBounds:
            bounds = answer.backlog_tokens, answer.kv_tokens, answer.migrating_tokens
            if all(type(bound) in (int, float) and not isnan(bound) for bound in bounds):
                return answer
        raise refused(self._scaler, BOUNDS, answer, "the answer is neither")

    def _no_change_until_ns(self, view: ScalingView) -> int:
        answer = ask(self._scaler, UNTIL, view)
        if type(answer) is not int:
            raise refused(self._scaler, UNTIL, answer, f"the answer is a {type(answer).__name__}")
        return answer


class CheckedArbiter:
    """An arbiter between models whose answers are checked; without one no model gives up an instance."""

    __slots__ = ("_arbiter",)

    def __init__(self, arbiter: Arbiter | None) -> None:
        self._arbiter = arbiter

    def offer(self, view: ScalingView) -> Offer | None:
        """Return the checked answer. Raises PolicyError."""
        if self._arbiter is None:
            return None
        answer: Any = ask(self._arbiter, OFFER, view)
        if answer is None:
            return None
        numbers = tuple(answer) if type(answer) is Offer else ()
        if not numbers or any(type(numbers[place]) is not int for place in (0, 1, 4)):
            raise refused(self._arbiter, OFFER, answer, "the answer is neither")
        _Check(self._arbiter, OFFER, view).decisions((taken_for("another model", answer),))
        return answer  # type: ignore[no-any-return]


def taken_for(wanting: str, offer: Offer) -> ScaleDecision:
    """Return the decision that takes the offered instance for a model."""
    reason = f"{wanting} lacks instances, and {offer.model} has {-offer.minus_surplus} more than it needs"
    return ScaleDecision(
        act="drain",
        model=offer.model,
        role=offer.role,
        count=1,
        instances=(offer.instance,),
        reason=reason,
    )


class _Check:
    """Checks one answer against the view it was given for."""

    def __init__(self, policy: object, question: Question, view: ScalingView) -> None:
        self._policy, self._question, self._view = policy, question, view
        self._roles: dict[object, RoleView] = {role.role: role for role in view.roles}
        self._named = set[int]()
        self._growth = dict[Role, int]()

    def decisions(self, answer: tuple[Any, ...]) -> None:
        """Check each decision, then their sum per role. Raises PolicyError."""
        for decision in answer:
            self._one(decision)
        for role, growth in self._growth.items():
            view = self._roles[role]
            if growth > 0 and view.supply + growth > view.maximum:
                self._refuse(answer, f"{view.supply + growth} {role} instances are above {view.maximum}")
            if growth < 0 and view.supply + growth < view.minimum:
                self._refuse(answer, f"{view.supply + growth} {role} instances are below {view.minimum}")

    def _one(self, decision: Any) -> None:
        if type(decision) is not ScaleDecision:
            self._refuse(decision, f"a decision is a {type(decision).__name__}, not a ScaleDecision")
        act, role, count, instances = decision.act, decision.role, decision.count, decision.instances
        if type(act) is not str or act not in ACTS:
            self._refuse(decision, f"the act {shown(act)} is unknown")
        if decision.model != self._view.model:
            self._refuse(decision, f"the view is of model {self._view.model}, not {shown(decision.model)}")
        if type(role) is not str or role not in self._roles:
            self._refuse(decision, f"{self._view.model} has no role {shown(role)}")
        if type(count) is not int or count < 1:
            self._refuse(decision, f"count must be an int of 1 or more, not {shown(count)}")
        if type(decision.reason) is not str or not decision.reason:
            self._refuse(decision, wrong_reason(decision.reason))
        self._instances(decision, () if act in ("load", "shortage") else self._there(act, role, decision))
        if act in ("load", "cancel_drain", "revive", "mutate"):
            self._growth[role] = self._growth.get(role, 0) + count
        if act in ("drain", "mutate"):
            shrinks: Role = "prefill" if act == "mutate" else role
            self._growth[shrinks] = self._growth.get(shrinks, 0) - count
        if act != "limit_batch":  # the same instance may be drained
            self._named.update(instances)

    def _there(self, act: str, role: Role, decision: ScaleDecision) -> Sequence[int]:
        """Return the instances that the act may name."""
        if act == "revive":
            return self._view.parked
        if act == "mutate":
            if role != "decode" or "prefill" not in self._roles:
                self._refuse(decision, "only a prefill instance can change its role, and only to decode")
            role = "prefill"
        return [instance.id for instance in self._roles[role].in_state(_FROM[act])]

    def _instances(self, decision: ScaleDecision, there: Sequence[int]) -> None:
        named: Any = decision.instances
        if type(named) is not tuple or any(type(number) is not int for number in named):
            self._refuse(decision, "instances is not a tuple of ids")
        if decision.act in ("load", "shortage"):
            if named:
                self._refuse(decision, f"{decision.act} must name no instances")
            return
        if decision.act == "limit_batch":
            if not named:
                self._refuse(decision, "limit_batch must name instances")
        elif len(named) != decision.count:
            self._refuse(decision, f"count is {decision.count} and {len(named)} instances are named")
        for position, number in enumerate(named):
            if number in named[:position] or number in self._named:
                self._refuse(decision, f"instance {number} is named twice")
            if number not in there:
                self._refuse(
                    decision,
                    f"{decision.act} does not apply to instance {number} of {self._view.model} in its state",
                )

    def _refuse(self, answer: object, why: str) -> NoReturn:
        raise refused(self._policy, self._question, answer, why)
