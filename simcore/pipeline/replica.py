"""A replica cut into stages, in virtual time: up to as many batches in flight as it has stages.

It reports when a request ends, the allowed steps are done, or after an interrupt. A report includes the steps
of all batches since the last one. If no decision is needed, the batch of an ended request continues at once
(``Run.until_finish``). Between two reports the ``FlowShop`` advances alone. It is advanced when the next
report may be due, or at an interrupt: then to the next end of a step. Results computed before an interrupt
for the time after it are discarded.
"""

from collections.abc import Callable

from simpy import Environment

from serving.vocabulary.actions import Interrupt, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.flow_shop import FOREVER, FlowShop
from simcore.pipeline.micro_batch import MicroBatch
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.timers import Timer


class PipelinedReplica:
    """``used_fixed``: time with a batch in flight; ``steps``: reported steps, of all batches."""

    __slots__ = (
        "_alone",
        "_batches",
        "_boundary",
        "_cut",
        "_epoch",
        "_goes_on",
        "_lost",
        "_machine",
        "_reporting",
        "_since",
        "_tell",
        "_telling",
        "_timer",
        "id",
        "shop",
        "steps",
        "used_fixed",
    )  # fmt: skip

    def __init__(
        self,
        machine: Machine,
        rows: StageCosts,
        *,
        lives: dict[int, Lifetime],
        recorder: Recorder,
        env: Environment,
        timer_rank: int,
        tell: Callable[[int, Ran], None],
        alone: bool = False,
    ) -> None:
        """``machine``: the other state of the replica; it runs nothing. ``tell``: called with each report.

        ``alone``: the steps that a ``Run`` allows are its own micro-batch's, which has memory of its own.
        """
        self._alone = alone
        self.id = machine.id
        self._machine = machine
        self.shop = FlowShop(rows.stages)
        self._batches = [
            MicroBatch(machine.id, index, rows, lives=lives, recorder=recorder, goes_on=not alone)
            for index in range(rows.stages)
        ]
        for batch in self._batches:
            batch.preemption_losses = machine.preemption_losses
        self._timer = Timer(env, timer_rank, self.due)
        self._tell = tell
        self._telling = self._cut = self._lost = self._goes_on = False
        self._boundary = 0  # end of the reported step
        self._reporting = -1  # the batch to be reported next
        self._epoch = 0
        self._since = -1
        self.used_fixed = 0
        self.steps = 0

    def begin(self, now_ns: int, run: Run) -> None:
        """Let a batch enter the stages; the allowed steps hold for all batches, unless it is alone."""
        if self._lost:
            return  # its loss is reported next
        if not self._telling:
            self._take_back()  # another one began at this moment, and was planned alone
            self._boundary = now_ns << FRACTION_BITS
        if self._since < 0:
            self._since = self._boundary
        self._epoch = run.epoch
        batch, order = self._batches[run.micro_batch], self.shop.order
        self._goes_on = not run.until_finish
        assert batch.lane not in order, "one step of a batch at a time"
        batch.begin(run, self._boundary)
        self.shop.enter(batch.lane, self._boundary)
        if self._alone:
            batch.allow(run.max_steps)
        else:
            for lane in order:
                self._batches[lane.index].allow(run.max_steps)
        if not self._telling:
            self._plan()

    def interrupt(self, now_ns: int, action: Interrupt) -> None:
        """Report the next step to end."""
        self._cut = True
        if not self._telling and (self.shop.order or self._reporting >= 0):
            self._take_back()
            self._advance(now_ns << FRACTION_BITS)

    def preempt(self, action: Preempt) -> None:
        """Take a request out of its batch, which has ended a step."""
        for batch in self._batches:
            if batch.holds(action.request):
                batch.take_out(action.request, self._boundary)
                return
        self._batches[0].take_out(action.request, self._boundary)

    def lose(self, now_ns: int) -> None:
        """Drop all batches of the lost replica: what was planned after this moment is taken back.

        Steps that have ended by now count; no report has them.
        """
        self._lost = True
        self._timer.cancel()
        self._take_back()
        self.shop.stop(now_ns)
        finished = list[int]()
        for batch in self._batches:
            self.steps += batch.book(finished)
            batch.clear()
        assert not finished, "a request ended without a report"
        self._pause(now_ns << FRACTION_BITS)

    def due(self, now_ns: int) -> None:
        """Report the next step if it has ended."""
        if self._reporting < 0:
            if not self.shop.order:
                return
            self._advance(FOREVER)
        batch, shop = self._batches[self._reporting], self.shop
        lane = batch.lane
        due_ns = shop.origin_ns + (lane.done >> FRACTION_BITS)
        if now_ns < due_ns:
            self._timer.at(due_ns)
            return
        finished = list[int]()
        other_batches = list[int]()
        steps = [
            one.book(finished if one is batch else other_batches) if one.lane.steps else 0
            for one in self._batches
        ]
        assert not other_batches, "a request ended without a report"
        self.steps += sum(steps)
        self._boundary = boundary = shop.origin + lane.done
        index, self._reporting = self._reporting, -1
        lane.told()
        running = self._goes_on and not self._cut and batch.decode_on(boundary)
        if running:
            shop.enter(lane, boundary)
        self._cut = False
        self._telling = True
        report = Ran(
            self.id, self._epoch, steps[index], tuple(finished), running, -1, (), index, tuple(steps)
        )
        self._tell(now_ns, report)
        self._telling = False
        if self._lost:
            return
        if shop.order:
            self._plan()
        else:
            self._pause(self._boundary)

    def _take_back(self) -> None:
        """Discard what was planned since the last report."""
        if self._reporting >= 0:
            self.shop.back()
            self._reporting = -1

    def _plan(self) -> None:
        """Plan the next report: schedule a check for its earliest time."""
        shop = self.shop
        shop.keep()
        if self._cut:
            self._advance(self._boundary)
            return
        self._timer.at(shop.earliest_end_ns())

    def _advance(self, until_fixed: int) -> None:
        lane = self.shop.advance(until_fixed)
        self._reporting = lane.index
        self._timer.at(self.shop.origin_ns + (lane.done >> FRACTION_BITS))

    def _pause(self, now_fixed: int) -> None:
        """Note that no batch is in flight."""
        if self._since >= 0:
            self.used_fixed += now_fixed - self._since
            self._since = -1
            self._machine.busy_ns = self.shop.computed() // self.shop.stages >> FRACTION_BITS
