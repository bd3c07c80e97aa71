"""Stages that batches pass one after the other, in virtual time: a flow shop in closed form.

A step of a batch begins at a stage once the stage before has sent its activations, and this stage has ended
its step of the batch ahead. A batch begins its next step when its last one has ended, behind the others. All
of this is additions and maxima of fixed-point integers.

If at every stage the same of the two reasons holds round after round, the ends of a batch's steps lie on
parabolas of one curvature, that of the batch it waits for. Such rounds are added up at once, up to the first
in which the other reason would hold (docs/explanation/PIPELINE.md says why this is exact).
"""

from typing import Final

from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.lane import Lane, Stage
from simcore.replica.segment import steps_to_reach

FOREVER: Final = 1 << 200
_ENDLESS: Final = -(1 << 62)  # the same inside: a machine word, as times are
_ROUNDS_SEEN: Final = 3  # three points determine a parabola
_FAR: Final = 1 << 58  # 17 s: after a run of some minutes, times still fit machine words


class FlowShop:
    """``order``: batches in flight, by the end of their steps.

    Times inside, including the lanes', count from ``origin``, which is ``origin_ns`` in fixed point.
    """

    __slots__ = ("_kept_order", "_kept_work", "_stages", "_work", "order", "origin", "origin_ns", "stages")

    def __init__(self, stages: int) -> None:
        self.stages = stages
        self.origin_ns = 0
        self._stages = [Stage() for _ in range(stages)]
        self.order: list[Lane] = []
        self._work = self._kept_work = self.origin = 0  # since ``keep``, and before it
        self._kept_order: list[Lane] = []

    def computed(self) -> int:
        """Total computing time of all stages, including steps in progress."""
        return self._kept_work + self._work

    def keep(self) -> None:
        """Save the present state for ``back``."""
        last_free = self._stages[-1].free
        if last_free > _FAR:
            self._shift(last_free)
        for stage in self._stages:
            stage.kept = stage.free
        self._kept_order = list(self.order)
        self._kept_work += self._work
        self._work = 0
        for lane in self.order:
            lane.keep()

    def back(self) -> None:
        """Restore the state of the last ``keep``."""
        for stage in self._stages:
            stage.free = stage.kept
        self.order = list(self._kept_order)
        self._work = 0
        for lane in self.order:
            lane.back()

    def enter(self, lane: Lane, release: int) -> None:
        """Begin the next step of a batch, not before ``release``."""
        if not self.order and release > self.origin + _FAR:
            self._shift(release - self.origin)
        lane.origin = self.origin
        lane.last = release - self.origin
        self._work += lane.total
        lane.go(lane.last, self._stages)
        self.order.append(lane)

    def _shift(self, by: int) -> None:
        """Move the origin of times ``by`` later, to a whole nanosecond."""
        by = by >> FRACTION_BITS << FRACTION_BITS
        self.origin += by
        self.origin_ns = self.origin >> FRACTION_BITS
        for stage in self._stages:
            stage.free -= by
        for lane in self.order:
            lane.shift(by)

    def earliest_end_ns(self) -> int:
        """A lower bound for when the next step to be reported ends."""
        order = self.order
        least = order[0].earliest_end()
        for lane in order:
            least = min(least, lane.earliest_end())
        return self.origin_ns + (least >> FRACTION_BITS)

    def advance(self, until_fixed: int) -> Lane:
        """Advance to the first end of a step to be reported, or not before then; returns its batch.

        That batch has left the stages.
        """
        rounds, order, until = 0, self.order, _ENDLESS
        if until_fixed < FOREVER:
            until = until_fixed - self.origin
        while True:
            count = len(order)
            for _ in range(count):
                lane = order.pop(0)
                lane.end()
                done = lane.done
                if lane.left <= 0 or _ENDLESS < until <= done:
                    return lane
                if lane.line == 0:
                    lane.find_line()
                    rounds = -1
                self._work += lane.total
                lane.go(done, self._stages)
                order.append(lane)
            rounds += 1
            if count == 1:
                self._jump_alone(order[0], until)
            elif rounds >= _ROUNDS_SEEN:
                self._jump(until)

    def stop(self, now_ns: int) -> None:
        """Advance to this moment and stop: steps that end at this nanosecond have ended, others never do.

        Of the latter the computing time up to this moment counts.
        """
        if not self.order:
            return
        lane = self.advance((now_ns + 1) << FRACTION_BITS)
        lane.undo_end()
        now = (now_ns << FRACTION_BITS) - self.origin
        self._work -= sum([one.computing_after(now) for one in (lane, *self.order)])
        self.order.clear()

    def _jump_alone(self, lane: Lane, until: int) -> None:
        """Advance a batch that is alone and waits at no stage: its steps are one straight line."""
        if _ENDLESS < until <= lane.done:
            return
        computed, slope = lane.total, lane.growth_each
        first = computed + lane.hops
        steps = min(lane.left - 1, lane.line)
        if until > _ENDLESS:
            steps = min(steps, steps_to_reach(first, slope, until - lane.done))
        if steps < 1:
            return
        lane.ended(lane.done - lane.last, first, steps, slope)
        cost = first + slope * (steps - 1)
        at, growth = lane.last, steps - 1
        for part, stage in zip(lane.stage_steps, self._stages):
            at += part.hop + part.cost + growth * part.slope
            part.end = stage.free = at
        assert at == lane.last + cost
        self._work += steps * computed + slope * (steps * growth >> 1)
        lane.done = at
        lane.begun(steps)

    def _jump(self, until: int) -> None:
        """Add up the rounds in which the ends of all steps surely lie on their parabolas."""
        order = self.order
        rounds = order[0].left - 1
        for lane in order:
            if lane.bend() < 0:
                return
            rounds = min(rounds, lane.left - 1, lane.line)
        ahead = order[-1]  # with the step of the round before it is ahead of the first of this one
        rounds = self._until(rounds, ahead, until)
        ago = True
        for lane in order:
            if rounds < 1:
                return
            rounds = lane.straight(rounds, ahead, ago)
            ahead, ago = lane, False
        if rounds < 1:
            return
        for lane in order:
            self._work += lane.jump(rounds)
        for part, stage in zip(ahead.stage_steps, self._stages):
            stage.free = part.end

    def _until(self, rounds: int, last: Lane, until: int) -> int:
        """Limit the rounds to those whose steps all end before ``until``; ``last``: the last of them."""
        if until == _ENDLESS or rounds < 1:
            return rounds
        if last.done >= until:
            return 0
        return min(rounds, steps_to_reach(last.growth + last.curve, last.curve, until - last.done))
