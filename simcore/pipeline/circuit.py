"""Batches that circulate on paths of stage replicas in virtual time: a cyclic job shop in fixed point.

Each replica runs one pass at a time, in the order in which batches arrive (at one moment: by their number). A
batch begins its next round on the same path when its last round has ended. All of this is additions and
maxima of integers, without events. An operation waits either for its batch or for its replica. If all batches
keep their order and every operation keeps its reason, the times lie on parabolas of one curvature. Such
rounds are added up at once, as in ``FlowShop``, whose batches share one path.
"""

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.path_lane import ROUNDS_SEEN, PathLane
from simcore.replica.segment import steps_to_reach

FOREVER: Final = 1 << 200
_TRIES_APART: Final = 64  # most rounds between two searches for a curve


class Circuit:
    """``lanes``: batches in flight, by number. ``free``: when each replica is free.

    ``work``: computing time of each replica. ``cut``: report the next round to end, of any batch.
    """

    __slots__ = ("_apart", "_due", "_kept", "_wait", "cut", "free", "lanes", "work")

    def __init__(self) -> None:
        self.lanes: dict[int, PathLane] = {}
        self.free: dict[int, int] = {}
        self.work: dict[int, int] = {}
        self.cut = False
        self._due: list[tuple[int, int]] = []  # a heap of (arrival at its next stage, lane)
        self._kept: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._wait = self._apart = 1

    def keep(self) -> None:
        """Save the present state for ``back``."""
        self._kept = (dict(self.free), dict(self.work))
        for one in self.lanes.values():
            one.keep()

    def back(self) -> None:
        """Restore the state of the last ``keep``."""
        free, work = self._kept
        self.free, self.work = dict(free), dict(work)
        for one in self.lanes.values():
            one.back()
        self._order()

    def enter(self, one: PathLane, release: int) -> None:
        """Let a batch begin rounds, the first one at ``release``."""
        self.lanes[one.index] = one
        one.stage, one.ready, one.fresh = 0, release, True
        one.lane.done = release
        heappush(self._due, (release, one.index))
        for replica in one.path:
            self.free.setdefault(replica, 0)
            self.work.setdefault(replica, 0)
        self._changed()

    def drop(self, index: int) -> PathLane:
        """Remove a batch."""
        one = self.lanes.pop(index)
        self._order()
        self._changed()
        return one

    def stop(self, replica: int, now_ns: int) -> None:
        """A replica is lost: the passes that it has begun or would begin after others do not end."""
        now_fixed = now_ns << FRACTION_BITS
        if (free := self.free.get(replica, 0)) > now_fixed:
            self.work[replica] -= free - now_fixed
            self.free[replica] = now_fixed

    def _changed(self) -> None:
        self._wait = self._apart = 1
        for one in self.lanes.values():
            one.seen = 0

    def _order(self) -> None:
        self._due = [(one.ready, one.index) for one in self.lanes.values()]
        heapify(self._due)

    def advance(self, until: int) -> PathLane | None:
        """Advance to the first end of a round to be reported; None if it is not before ``until``."""
        due, lanes = self._due, self.lanes
        while due and due[0][0] < until:
            one = lanes[due[0][1]]
            if one.stage == 0 and not one.fresh:
                lane = one.lane
                lane.ended(lane.done - lane.last, 0, 1)
                if lane.left <= 0 or self.cut:
                    heappop(due)
                    return one
                if lane.line == 0:
                    lane.find_line()
                    one.seen = -1
                one.seen += 1
                one.fresh = True
                if self._looks(one) and self._jump(until):
                    due = self._due
                    continue
            heappop(due)
            self._operate(one)
        return None

    def _operate(self, one: PathLane) -> None:
        """Run the next stage of a batch."""
        stage, ready, lane, free = one.stage, one.ready, one.lane, self.free
        replica, cost = one.path[stage], lane.costs[stage]
        late = ready - free[replica]
        end = (ready if late >= 0 else free[replica]) + cost
        free[replica] = end
        self.work[replica] += cost
        one.note(stage, ready, late, end)
        one.fresh = False
        if stage + 1 < one.stages:
            one.stage, one.ready = stage + 1, end + lane.hops[stage + 1]
        else:
            one.stage, one.ready = 0, end
            lane.done = end
            lane.begun(1)
        heappush(self._due, (one.ready, one.index))

    def _looks(self, one: PathLane) -> bool:
        """Whether to search for a curve now; less often after searches without success."""
        if one.seen < ROUNDS_SEEN or one.index != min(self.lanes):
            return False
        self._wait -= 1
        if self._wait > 0:
            return False
        self._apart = min(2 * self._apart, _TRIES_APART)
        self._wait = self._apart
        return True

    def _jump(self, until: int) -> bool:
        """Add up the rounds whose times surely lie on their parabolas; returns whether there were any."""
        lanes = list(self.lanes.values())
        curve, rounds = lanes[0].curve(), FOREVER
        if curve < 0:
            return False
        for one in lanes:
            if one.seen < ROUNDS_SEEN or one.lane.left < 2:
                return False
            rounds = min(rounds, one.lane.left - 1, one.lane.line - 1)
        for one in lanes:
            if rounds < 1:
                return False
            rounds = one.straight(rounds, curve)
        rounds = self._until(self._in_order(rounds, curve), curve, until)
        if rounds < 1:
            return False
        for one in lanes:
            self._worked(one, rounds)
            one.jump(rounds, curve)
        for replica in self.free:
            ends = [one.ends[stage][0] for one, stage in self._at(replica)]
            self.free[replica] = max(ends, default=self.free[replica])
        self._order()
        return True

    def _at(self, replica: int) -> list[tuple[PathLane, int]]:
        """The batches that pass a replica, each with its stage there."""
        return [(one, one.path.index(replica)) for one in self.lanes.values() if replica in one.path]

    def _worked(self, one: PathLane, rounds: int) -> None:
        lane, growth = one.lane, rounds * (rounds - 1) >> 1
        for stage, replica in enumerate(one.path):
            # If this stage of the round in progress is already computed, its next operation comes first.
            first = lane.costs[stage] + (lane.slopes[stage] if stage < one.stage else 0)
            self.work[replica] += rounds * first + lane.slopes[stage] * growth

    def _in_order(self, rounds: int, curve: int) -> int:
        """Limit the rounds to those in which all operations keep the order of the last rounds."""
        last = sorted((points[0], one.index, points) for one in self.lanes.values() for points in one.readies)
        for (_, _, before), (_, _, after) in pairwise(last):
            distance = after[0] - before[0]
            rounds = _while_ahead(distance, distance - (after[1] - before[1]), rounds)
            if rounds < 1:
                return 0
        first, newest = last[0][2], last[-1][2]
        growth = first[0] - first[1]
        distance = first[0] + growth + curve - newest[0]
        return _while_ahead(distance, growth + curve - (newest[0] - newest[1]), rounds)

    def _until(self, rounds: int, curve: int, until: int) -> int:
        """Limit the rounds to those whose operations and ends all come before ``until``."""
        if rounds < 1 or until >= FOREVER:
            return rounds
        for one in self.lanes.values():
            ends = [(one.ready, one.readies[0][0])] if one.stage == 0 and one.fresh else []
            for ready, before in [*[(ready, before) for ready, before, _ in one.readies], *ends]:
                if ready >= until:
                    return 0
                rounds = min(rounds, steps_to_reach(ready - before + curve, curve, until - ready) - 1)
        return rounds


def _while_ahead(distance: int, change: int, rounds: int) -> int:
    """How many of these rounds a distance that changes by ``change`` per round stays above 0.

    If two batches arrive at the same time in every round, their numbers decide.
    """
    if distance == 0 and change == 0:
        return rounds
    if min(distance, distance - change, distance - 2 * change) <= 0:
        return 0
    return rounds if change >= 0 else min(rounds, (distance - 1) // -change)
