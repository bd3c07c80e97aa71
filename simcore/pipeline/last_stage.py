"""Batches that wait for each other at the last stage alone: rounds are added up without trying three of them.

With the head the last stage takes longest where layers are cut evenly. Then a batch passes the others freely
and queues up once, so a round is one number for each batch: when it ends. The first batch in order, and every
one that comes after the last stage is free, goes its own way; those that queue up follow the one before them,
and their ends lie as far behind its ends as they take there. All of that is a parabola from the second round
on. It holds for as long as who queues up does, which is a parabola too.
"""

from typing import Final

from simcore.pipeline.lane import Lane
from simcore.pipeline.parabola import rounds_not_negative
from simcore.replica.segment import steps_to_reach

FOREVER: Final = 1 << 200


class Course:
    """How the ends of a batch's steps go on, from the one in progress.

    ``think``, ``more``: from that to the last stage in the next step, and how much longer each time;
    ``late``: after that stage was free; ``gap``: to the next end; ``first``: from there to the one after it,
    and every further one is ``curve`` longer. ``leaves``, ``grows``: when it leaves the stages before.
    """

    __slots__ = ("curve", "first", "gap", "grows", "late", "leaves", "more", "think")

    def __init__(self, lane: Lane, free_fixed: int) -> None:
        last = lane.stages - 1
        leaves, grows, at, growth = list[int](), list[int](), 0, 0
        for stage in range(last):
            at += lane.hops[stage] + lane.costs[stage]
            growth += lane.slopes[stage]
            leaves.append(at)
            grows.append(growth)
        self.leaves, self.grows = leaves, grows
        self.think, self.more = at + lane.hops[last], growth
        self.late = late = lane.done + self.think - free_fixed
        cost = lane.costs[last]
        self.gap = self.think + cost if late >= 0 else free_fixed + cost - lane.done
        # Of one that goes its own way.
        self.curve = growth + lane.slopes[last]
        self.first = self.gap + self.curve


def jump_at_last_stage(order: list[Lane], free: list[int], until: int) -> int:
    """Add up rounds; returns what they computed, 0: none are surely so; -1: not from this batch on.

    ``free``: when the stages are. No more rounds than have steps end before ``until`` alone.
    """
    rounds = order[0].left - 1
    for lane in order:
        rounds = min(rounds, lane.left - 1, lane.line)
    if rounds < 2 or order[-1].done >= until:
        return 0
    courses, free_fixed = list[Course](), free[-1]
    for lane in order:
        one = Course(lane, free_fixed)
        if one.late >= 0 and courses and courses[0].late < 0:
            return -1
        courses.append(one)
        free_fixed = lane.done + one.gap
    _follow(order, courses)
    if courses[-1].curve < 0:
        return 0
    rounds = _before(order[-1], courses[-1], rounds, until)
    rounds = _while_queued(courses, rounds)
    rounds = _while_free(order, courses, free, rounds)
    if rounds < 2:
        return 0
    computed = 0
    for lane, one in zip(order, courses):
        computed += lane.go_on(rounds, one.gap, one.first, one.curve)
    release = order[-1].last
    for stage, leaves in enumerate(courses[-1].leaves):
        free[stage] = release + leaves + (rounds - 1) * courses[-1].grows[stage]
    free[-1] = order[-1].done
    return computed


def _follow(order: list[Lane], courses: list[Course]) -> None:
    """Those that queue up go on as the one before them; where all do, as all take at the last stage."""
    before = courses[0]
    if before.late < 0:
        before.first = sum([lane.costs[-1] for lane in order]) + order[0].slopes[-1]
        before.curve = sum([lane.slopes[-1] for lane in order])
    for lane, one in zip(order, courses):
        if one.late < 0 and one is not before:
            one.first, one.curve = before.first + lane.slopes[-1], before.curve
        before = one


def _before(lane: Lane, last: Course, rounds: int, until: int) -> int:
    """Ends of the last one in order are the latest of their rounds."""
    if until >= FOREVER:
        return rounds
    left = until - lane.done - last.gap
    return min(rounds, 1 + steps_to_reach(last.first, last.curve, left)) if left > 0 else 1


def _while_queued(courses: list[Course], rounds: int) -> int:
    """For how many rounds the same ones queue up."""
    before = courses[-1]
    for place, one in enumerate(courses):
        if place:
            late = one.late + one.gap + one.more - before.first
            change = one.first + one.more - before.first - before.curve
        else:  # it follows the last one's step of the round before
            late = one.late + one.gap + one.more - before.gap
            change = one.first + one.more - before.first
        curve = one.curve - before.curve
        if one.late < 0:
            late, change, curve = -late, -change, -curve
        rounds = min(rounds, 1 + rounds_not_negative(late, change, curve, rounds - 1))
        before = one
    return rounds


def _while_free(order: list[Lane], courses: list[Course], free: list[int], rounds: int) -> int:
    """For how many rounds nobody surely waits before the last stage.

    Each leaves that at least as much after the one before it as it takes there.
    """
    before, apart = courses[-1], 0
    for place, one in enumerate(courses):
        lane, cost = order[place], order[place].costs[-1]
        if place:
            apart = lane.done - order[place - 1].done
        for stage, leaves in enumerate(one.leaves):
            comes = leaves - lane.costs[stage]
            grows = one.grows[stage] - lane.slopes[stage]
            if place:
                held, now = before.leaves[stage] + before.grows[stage], before.leaves[stage]
            else:
                held, now = before.leaves[stage], free[stage] - lane.done
            if comes + apart < now:
                return 0
            spare, change = cost + comes + grows - held, lane.slopes[-1] + grows - before.grows[stage]
            if spare < 0:
                return 0
            if change < 0:
                rounds = min(rounds, 2 + spare // -change)
        before = one
    return rounds
