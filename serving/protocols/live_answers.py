"""Asks a live policy and its scheduler, and checks their answers against what they were shown."""

from typing import Any, Final, NoReturn, get_args

from serving.protocols.live import LiveChoice, LivePlan, LivePolicy, LiveRule, LiveScheduler, LiveView
from serving.protocols.policy_faults import Question, ask, read, refused, shown, wrong_reason

SELECT: Final = Question("select", "a tuple of replica ids, each that of a target of the view and named once")
PLAN: Final = Question(
    "plan",
    f"a LivePlan: rule {' or '.join(get_args(LiveRule))}, for a split one number of layers for each batch, "
    "an int from 0 to all of them, refused True or False, reason a str that is not empty",
)
EMBEDS: Final = Question("embeds", "True or False", is_attribute=True)
SCHEDULER: Final = Question("scheduler", "an object with ahead, solve_ns and plan", is_attribute=True)
AHEAD: Final = Question("ahead", "an int of 0 or more", is_attribute=True)
SOLVE_NS: Final = Question("solve_ns", "an int of 0 or more", is_attribute=True)


class CheckedLivePolicy:
    """A live policy whose answers are checked; its constant attributes are read once."""

    __slots__ = ("_policy", "embeds", "scheduler")

    def __init__(self, policy: LivePolicy) -> None:
        self._policy = policy
        self.embeds: bool = _read(policy, EMBEDS, bool)
        self.scheduler: LiveScheduler = CheckedLiveScheduler(_read(policy, SCHEDULER, object))

    def select(self, choice: LiveChoice) -> tuple[int, ...]:
        """Return the checked answer. Raises PolicyError."""
        answer: Any = ask(self._policy, SELECT, choice)
        if type(answer) is not tuple or any(type(number) is not int for number in answer):
            raise refused(self._policy, SELECT, answer, "the answer is not a tuple of ids")
        there = [target.replica for target in choice.targets]
        for position, number in enumerate(answer):
            if number not in there or number in answer[:position]:
                raise refused(
                    self._policy,
                    SELECT,
                    answer,
                    f"replica {number} is not a target of the view or is named twice",
                )
        return answer


class CheckedLiveScheduler:
    """A live scheduler whose answers are checked; its constant attributes are read once."""

    __slots__ = ("_scheduler", "ahead", "solve_ns")

    def __init__(self, scheduler: LiveScheduler) -> None:
        self._scheduler = scheduler
        self.ahead, self.solve_ns = _count(scheduler, AHEAD), _count(scheduler, SOLVE_NS)

    def plan(self, view: LiveView) -> LivePlan:
        """Return the checked plan. Raises PolicyError."""
        plan: Any = ask(self._scheduler, PLAN, view)
        if type(plan) is not LivePlan:
            self._refuse(plan, f"the answer is a {type(plan).__name__}")
        if type(plan.rule) is not str or plan.rule not in get_args(LiveRule):
            self._refuse(plan, f"the rule {shown(plan.rule)} is unknown")
        if type(plan.refused) is not bool:
            self._refuse(plan, "refused is neither True nor False")
        if type(plan.reason) is not str or not plan.reason:
            self._refuse(plan, wrong_reason(plan.reason))
        if plan.rule == "split":
            self._check_split(plan, view)
        return plan

    def _check_split(self, plan: LivePlan, view: LiveView) -> None:
        split: Any = plan.target_layers
        if type(split) is not tuple or len(split) != view.batches:
            self._refuse(plan, f"a split of {view.batches} batches must be a tuple of {view.batches} numbers")
        if not all(type(layers) is int and 0 <= layers <= view.layers for layers in split):
            self._refuse(plan, f"each number of a split must be an int from 0 to {view.layers}")

    def _refuse(self, answer: object, why: str) -> NoReturn:
        raise refused(self._scheduler, PLAN, answer, why)


def _read(policy: object, question: Question, kind: type) -> Any:
    """Return the policy's attribute that the question names."""
    answer = read(policy, question)
    if kind is not object and type(answer) is not kind:
        raise refused(policy, question, answer, f"the value is a {type(answer).__name__}")
    return answer


def _count(policy: object, question: Question) -> int:
    count: int = _read(policy, question, int)
    if count < 0:
        raise refused(policy, question, count, "the value is below 0")
    return count
