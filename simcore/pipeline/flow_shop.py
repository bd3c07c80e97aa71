"""Stages that batches pass one behind the other, in virtual time: a flow shop in closed form.

A step of a batch begins at a stage when the stage before has passed its activations on, and the stage has
ended the step of the batch before it. A batch begins its next step when its last one has ended, behind the
others. All of this is additions and maxima of fixed-point integers.

Where at every stage the same one of the two reasons holds round after round, the ends of a batch's steps come
to lie on parabolas of one curvature, which is that of the batch it waits for: such rounds are added up at
once, up to the first in which another reason would hold (docs/PIPELINE.md says why this is exact).
"""

from typing import Final

from simcore.pipeline.lane import Lane
from simcore.replica.segment import steps_to_reach

FOREVER: Final = 1 << 200
_ROUNDS_SEEN: Final = 3  # a parabola is known by three of its points


class FlowShop:
    """``order``: the batches in flight, by the end of their steps. ``free``: when each stage is.

    ``work``: what all stages together have computed, steps in progress included.
    """

    __slots__ = ("_kept_free", "_kept_order", "_kept_work", "free", "order", "stages", "work")

    def __init__(self, stages: int) -> None:
        self.stages = stages
        self.free = [0] * stages
        self.order: list[Lane] = []
        self.work = 0
        self._kept_free = [0] * stages
        self._kept_order: list[Lane] = []
        self._kept_work = 0

    def keep(self) -> None:
        """All is booked up to here."""
        self._kept_free = list(self.free)
        self._kept_order = list(self.order)
        self._kept_work = self.work
        for lane in self.order:
            lane.keep()

    def back(self) -> None:
        """To where ``keep`` was called last."""
        self.free = list(self._kept_free)
        self.order = list(self._kept_order)
        self.work = self._kept_work
        for lane in self.order:
            lane.back()

    def enter(self, lane: Lane, release: int) -> None:
        """The next step of a batch begins, not before ``release``."""
        self.work += lane.go(release, self.free)
        self.order.append(lane)

    def advance(self, until: int) -> Lane:
        """Go on to the first end of a step that is to be reported, or is not before ``until``; whose it is.

        That batch has left the stages.
        """
        rounds, order = 0, self.order
        while True:
            count = len(order)
            for _ in range(count):
                lane = order.pop(0)
                lane.end()
                done = lane.done
                if lane.left <= 0 or done >= until:
                    return lane
                if lane.line == 0:
                    lane.find_line()
                    rounds = -1
                self.work += lane.go(done, self.free)
                order.append(lane)
            rounds += 1
            if count == 1:
                self._jump_alone(order[0], until)
            elif rounds >= _ROUNDS_SEEN:
                self._jump(until)

    def _jump_alone(self, lane: Lane, until: int) -> None:
        """A batch alone waits at no stage: its steps are one straight line."""
        if lane.done >= until:
            return
        first, slope = sum(lane.costs) + sum(lane.hops), sum(lane.slopes)
        steps = min(lane.left - 1, lane.line)
        if until < FOREVER:
            steps = min(steps, steps_to_reach(first, slope, until - lane.done))
        if steps < 1:
            return
        lane.ended(lane.done - lane.last, first, steps, slope)
        cost = first + slope * (steps - 1)
        at, growth = lane.last, steps - 1
        for stage in range(self.stages):
            at += lane.hops[stage] + lane.costs[stage] + growth * lane.slopes[stage]
            self.free[stage] = at
        assert at == lane.last + cost
        computed = first - sum(lane.hops)
        self.work += steps * computed + slope * (steps * growth >> 1)
        lane.done = at
        lane.begun(steps)

    def _jump(self, until: int) -> None:
        """Add up the rounds for which the ends of all steps surely lie on their parabolas."""
        order = self.order
        rounds = order[0].left - 1
        curves = list[int]()
        for lane in order:
            curve = lane.curve()
            if curve < 0:
                return
            curves.append(curve)
            rounds = min(rounds, lane.left - 1, lane.line)
        before = last = curves[-1]
        rounds = self._until(rounds, last, until)
        for lane, curve in zip(order, curves):
            if rounds < 1:
                return
            rounds = lane.straight(rounds, curve, before)
            before = curve
        if rounds < 1:
            return
        before = last
        for lane, curve in zip(order, curves):
            self.work += lane.jump(rounds, curve, before)
            before = curve
        self.free = list(order[-1].ends)

    def _until(self, rounds: int, curve: int, until: int) -> int:
        """No more rounds than have steps end before ``until`` alone."""
        last = self.order[-1]
        if until >= FOREVER or rounds < 1:
            return rounds
        if last.done >= until:
            return 0
        return min(rounds, steps_to_reach(last.growth() + curve, curve, until - last.done))
