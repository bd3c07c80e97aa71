"""All data-parallel groups of a world, and the dispatch of runs to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simpy import Environment

from serving.vocabulary.actions import Interrupt, Run
from serving.vocabulary.events import Ran
from simcore.loading_replicas import COMPLETION_RANK, RunHooks
from simcore.lockstep.group import LockstepGroup
from simcore.replica.machine import Machine
from simcore.replica.step_times import ExpertTimes, StepTimes


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """``ranks``: replicas of a group; ``rows``: a rank's own part of a step; ``experts``: the common part."""

    ranks: tuple[int, ...]
    rows: StepTimes
    experts: ExpertTimes


class LockstepGroups:
    """``of``: the group of every replica that is a rank of one."""

    __slots__ = ("groups", "of")

    def __init__(
        self,
        plans: Sequence[GroupPlan],
        machines: Mapping[int, Machine],
        env: Environment,
        tell: Callable[[int, Ran], None],
    ) -> None:
        self.groups: list[LockstepGroup] = []
        self.of: dict[int, LockstepGroup] = {}
        for plan in plans:
            own = [machines[replica] for replica in plan.ranks]
            _, intercept, slope = plan.rows.decode(1)[0]
            rank = COMPLETION_RANK + plan.ranks[0]
            group = LockstepGroup(
                own, dummy_fixed=intercept + slope, experts=plan.experts, env=env, timer_rank=rank, tell=tell
            )
            self.groups.append(group)
            self.of |= dict.fromkeys(plan.ranks, group)

    def hooks(self) -> RunHooks:
        """Hooks that pass the runs of all ranks to their groups."""
        return RunHooks(set(self.of), self.of, self.takes, self.interrupt)

    def takes(self, now_ns: int, run: Run) -> bool:
        """Let the rank's group begin this run."""
        self.of[run.replica].begin(now_ns, run)
        return True

    def interrupt(self, now_ns: int, action: Interrupt) -> None:
        """Interrupt a rank's run."""
        self.of[action.replica].interrupt(now_ns, action)

    def lose(self, now_ns: int, replica: int) -> None:
        """Lose a replica, and its group if it was a rank of one."""
        if (group := self.of.get(replica)) is not None:
            group.lose(now_ns)
