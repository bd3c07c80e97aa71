"""One data-parallel group: ranks with a scheduler, a queue and KV memory each, whose steps begin together.

Every forward pass of a mixture of experts has collectives over all ranks, so each rank waits for the slowest.
A rank without work runs a dummy step (vLLM 0.19: DPEngineCoreProc.run_busy_loop).
docs/contributing/STATES.md has the table of states and events.

A step takes as long as the slowest rank's own part, plus the experts' time for the tokens of all ranks. Step
times of decoding ranks are linear, so a series of steps in which no batch changes is one event. A rank
receives a report only when its own batch changes; steps cut by other ranks are counted until then.

A request that arrives at a rank without work waits for the next boundary. There the rank chooses again, since
more requests may have come: the report for its dropped first choice has no steps. A rank that has work and
has not chosen in time requests a dummy step itself, and chooses again after it.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from simpy import Environment

from serving.vocabulary.actions import Interrupt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach
from simcore.replica.step_times import ExpertTimes
from simcore.timers import Timer

# Which rank of a group is slowest, and for how many steps: all ranks take as long as that one.

Line = tuple[int, int]
"""(first, slope): step i of a rank would take ``first + i * slope`` by itself, in fixed point."""


def steps_cost(first: int, slope: int, steps: int) -> int:
    """Total cost of ``steps`` steps on a line."""
    return steps * first + slope * (steps * (steps - 1) >> 1)


def slowest(lines: Sequence[Line], steps: int) -> tuple[int, int, int]:
    """(first, slope, steps) of the slowest line, up to the first step in which another one is slower."""
    first, slope = max(lines)
    for other, steeper in lines:
        if steeper > slope:  # it starts lower, or level
            behind = (first - other) // (steeper - slope) + 1
            if behind < steps:
                steps = behind
    return first, slope, steps


# The cost of the next steps of one rank if it ran alone.


def own_steps(machine: Machine) -> tuple[int, int, int, int]:
    """(first, slope, steps), and the tokens of each."""
    run, tokens = machine.run, machine.decoding
    assert run is not None
    if not machine._head:
        return machine._first, machine._slope, machine._steps, tokens
    chunks = [chunk[2] for chunk in run.chunks]
    return machine._head, 0, 1, sum(chunks) + (tokens if run.decode else 0)


STEPS_PER_SYNC: Final = 32
"""Ranks ask each other only so often whether all are done (vLLM 0.19: _has_global_unfinished_reqs)."""


class GroupState(IntEnum):
    """PAUSED: no rank has work, no step runs. STEPPING: steps run, dummy ones for ranks without work.

    BOUNDARY: a step has ended, and ranks with work choose the next one. LOST: a rank is lost, and with it
    all.
    """

    PAUSED = 0
    STEPPING = 1
    BOUNDARY = 2
    LOST = 3


_PAUSED, _STEPPING, _BOUNDARY, _LOST = GroupState


class LockstepGroup:
    """A group of ranks. By rank: dummy_steps, time of other steps, and waiting in it.

    steps: all steps of the group. worked_fixed: time of the other steps; waited_fixed: how much of it the
    rank waited for the slowest one.
    """

    __slots__ = (
        "_asked", "_due_fixed", "_dummy_fixed", "_experts", "_first", "_machines", "_own",
        "_rank_of", "_slope", "_start_fixed", "_steps", "_tell", "_timer", "_unreported", "_wave_steps",
        "dummy_steps", "state", "steps", "waited_fixed", "worked_fixed",
    )  # fmt: skip

    def __init__(
        self,
        machines: Sequence[Machine],
        *,
        dummy_fixed: int,
        experts: ExpertTimes,
        env: Environment,
        timer_rank: int,
        tell: Callable[[int, Ran], None],
    ) -> None:
        """``machines``: one per rank. ``dummy_fixed``: own part of a dummy step. ``tell``: takes reports."""
        self._machines = list(machines)
        self._rank_of = {machine.id: rank for rank, machine in enumerate(machines)}
        self._dummy_fixed, self._experts = dummy_fixed, experts
        self._tell = tell
        self._timer = Timer(env, timer_rank, self.due)
        self.state: GroupState = _PAUSED
        self._asked: dict[int, tuple[int, int]] = {}  # rank -> (epoch of a run not begun, steps to report)
        self._wave_steps = 0  # since the last pause
        # The steps in progress cost first + i * slope; _own has the cost of each rank alone.
        self._start_fixed = self._due_fixed = self._first = self._slope = self._steps = 0
        ranks = len(self._machines)
        self._own: list[Line] = [(0, 0)] * ranks
        self._unreported = [0] * ranks  # steps not reported to the engine yet
        self.steps = 0
        self.dummy_steps, self.worked_fixed, self.waited_fixed = [0] * ranks, [0] * ranks, [0] * ranks

    def begin(self, now_ns: int, run: Run) -> None:
        """Request a run of a rank: it begins at this boundary, or waits for the next one."""
        if self.state is _LOST:
            return  # its loss is reported next
        rank, dummy = self._rank_of[run.replica], not run.chunks and not run.decode
        if self.state is _BOUNDARY and not dummy:
            self._machines[rank].start(now_ns, run)
            return
        self._asked[rank] = run.epoch, int(dummy)
        if self.state is _PAUSED:
            self._timer.at(now_ns)
        elif self.state is _STEPPING:
            self._end_after(self._steps_until(now_ns))

    def interrupt(self, now_ns: int, action: Interrupt) -> None:
        """End a rank's run at the next boundary, or ``grace_steps`` later."""
        machine = self._machines[self._rank_of[action.replica]]
        if machine.run is not None and machine.interrupt(now_ns, action.grace_steps):
            self._end_after(own_steps(machine)[2])

    def lose(self, now_ns: int) -> None:
        """Lose the group: the other ranks would wait for the lost rank for ever.

        Its steps that have ended by now count; no report has them.
        """
        if self.state is _STEPPING:
            until_fixed = (now_ns + 1) << FRACTION_BITS
            ended = steps_to_reach(self._first, self._slope, until_fixed - self._start_fixed) - 1
            steps = min(self._steps, ended)
            self._count(steps, steps_cost(self._first, self._slope, steps))
        self.state = _LOST
        self._timer.cancel()
        self._asked.clear()

    def due(self, now_ns: int) -> None:
        """End steps that are due, or begin after requests came to a paused group."""
        if self.state is _STEPPING:
            due_ns = self._due_fixed >> FRACTION_BITS
            if now_ns < due_ns:
                self._timer.at(due_ns)
                return
        elif self.state is _LOST or not self._asked:
            return  # its steps were cut short
        queries, self._asked = sorted(self._asked.items()), {}
        reports = self._end_steps() if self.state is _STEPPING else []
        if self.state is _PAUSED:
            self._due_fixed = now_ns << FRACTION_BITS
        self.state = _BOUNDARY
        for report in reports:
            self._tell(now_ns, report)
            machine = self._machines[self._rank_of[report.replica]]
            if machine.run is None:
                machine.idle()
        for rank, (epoch, steps) in queries:
            self._tell(now_ns, Ran(self._machines[rank].id, epoch, steps, (), False, now_ns))
        self._plan()

    def _end_steps(self) -> list[Ran]:
        """End the steps in progress; returns the reports, by rank."""
        reports = list[Ran]()
        self._count(self._steps, self._due_fixed - self._start_fixed)
        for rank, machine in enumerate(self._machines):
            if machine.run is None:
                continue
            report = machine.complete()
            ran = report.steps + self._unreported[rank]
            if report.running and not report.finished:
                self._unreported[rank] = ran
                continue
            self._unreported[rank] = 0
            if ran != report.steps:
                report = Ran(
                    report.replica, report.epoch, ran, report.finished, report.running, report.last_step_ns
                )
            reports.append(report)
        return reports

    def _count(self, steps: int, cost: int) -> None:
        """Count ended steps and what every rank did in them."""
        self.steps += steps
        self._wave_steps += steps
        for rank, machine in enumerate(self._machines):
            if machine.run is None:
                self.dummy_steps[rank] += steps
                continue
            first, slope = self._own[rank]
            self.worked_fixed[rank] += cost
            self.waited_fixed[rank] += cost - steps_cost(first, slope, steps)

    def _plan(self) -> None:
        """All ranks with work have chosen: begin the next steps, or pause the group."""
        working = [machine for machine in self._machines if machine.run is not None]
        until_sync = STEPS_PER_SYNC - self._wave_steps % STEPS_PER_SYNC
        if not working and not self._asked and until_sync == STEPS_PER_SYNC:
            self.state = _PAUSED
            self._wave_steps = 0
            return
        least = min([own_steps(machine)[2] for machine in working], default=until_sync)
        self._begin_steps(1 if self._asked else least)

    def _begin_steps(self, most: int) -> None:
        """Begin at most ``most`` steps of all ranks."""
        tokens, lines = list[int](), list[Line]()
        for machine in self._machines:
            if machine.run is None:
                tokens.append(1)
                lines.append((self._dummy_fixed, 0))
            else:
                first, slope, _, own_tokens = own_steps(machine)
                tokens.append(own_tokens)
                lines.append((first, slope))
        first, slope, steps = slowest(lines, most)
        common = self._experts.group_cost(tokens)
        self._own = [(own + common, steeper) for own, steeper in lines]
        self.state = _STEPPING
        self._start_fixed, self._first, self._slope = self._due_fixed, first + common, slope
        self._pace(steps)

    def _pace(self, steps: int) -> None:
        """Set the number of steps in progress."""
        start, first, slope = self._start_fixed, self._first, self._slope
        self._steps = steps
        for machine in self._machines:
            if machine.run is not None:
                machine.pace(start, first, slope, steps)
        self._due_fixed = due_fixed = start + steps_cost(first, slope, steps)
        self._timer.at(due_fixed >> FRACTION_BITS)

    def _end_after(self, steps: int) -> None:
        """Shorten the steps in progress to at most ``steps``."""
        if self.state is _STEPPING and steps < self._steps:
            self._pace(steps)

    def _steps_until(self, now_ns: int) -> int:
        """Steps in progress up to the first boundary not before now."""
        return steps_to_reach(self._first, self._slope, (now_ns << FRACTION_BITS) - self._start_fixed)
