"""All pipelined replicas of a world, and the dispatch of runs to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simpy import Environment

from serving.vocabulary.actions import Interrupt, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.recorder import Recorder
from simcore.loading_replicas import COMPLETION_RANK, RunHooks
from simcore.pipeline.replica import PipelinedReplica
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.lost_machine import lose
from simcore.replica.machine import Machine
from simcore.replica.swaps import wait_for_copy


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """``rows``: step times of this replica, stage by stage. ``alone``: see ``PipelinedReplica``."""

    replica: int
    rows: StageCosts
    alone: bool = False


class Pipelines:
    """``of``: the pipelined replicas, by replica number."""

    __slots__ = ("_machines", "of")

    def __init__(
        self,
        plans: Sequence[PipelinePlan],
        *,
        machines: Mapping[int, Machine],
        lives: dict[int, Lifetime],
        recorder: Recorder,
        env: Environment,
        tell: Callable[[int, Ran], None],
    ) -> None:
        self._machines = machines
        self.of = {
            plan.replica: PipelinedReplica(
                machines[plan.replica],
                plan.rows,
                lives=lives,
                recorder=recorder,
                env=env,
                timer_rank=COMPLETION_RANK + plan.replica,
                tell=tell,
                alone=plan.alone,
            )
            for plan in plans
        }

    def hooks(self) -> RunHooks:
        """Hooks that begin their runs here."""
        return RunHooks(set(self.of), self.of, self.takes, self.interrupt)

    def takes(self, now_ns: int, run: Run) -> bool:
        """Begin a run of a pipelined replica."""
        self.of[run.replica].begin(now_ns, run)
        return True

    def interrupt(self, now_ns: int, action: Interrupt) -> None:
        """Report the next step of the replica."""
        self.of[action.replica].interrupt(now_ns, action)

    def preempt(self, now_ns: int, action: Preempt) -> None:
        """Take a request out of its batch, on any replica."""
        if (pipelined := self.of.get(action.replica)) is not None:
            pipelined.preempt(action)
            return
        machine = self._machines[action.replica]
        machine.preempt(action.request)
        if action.swap_ns:
            wait_for_copy(machine, now_ns, action.swap_ns)

    def lose(self, now_ns: int, replica: int) -> None:
        """Lose a replica, pipelined or not."""
        lose(self._machines[replica], now_ns)
        if (pipelined := self.of.get(replica)) is not None:
            pipelined.lose(now_ns)
