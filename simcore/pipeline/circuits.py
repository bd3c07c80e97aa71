"""Language models whose stages are separate replicas: circulating batches, as a world runs them.

A ``Run`` with a path belongs here. It is reported when a decision is needed: a request has ended, a prompt is
computed, the allowed steps are done, an interrupt. Until then the ``Circuit`` of the model advances alone; it
computes in advance when the next report is due. If an event comes before that, the circuit returns to the
last report and advances to the event's time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from simpy import Environment

from serving.vocabulary.actions import Run, Span
from serving.vocabulary.events import Ran
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.lane import same_side
from simcore.pipeline.micro_batch import MicroBatch
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach
from simcore.timers import Timer

# One batch that circulates on a path of stage replicas: its position, and its last rounds.

ROUNDS_SEEN = 3  # three points determine a parabola


class PathLane:
    """``stage``: its next stage, reached at ``ready``. ``fresh``: its requested round has not begun.

    ``spans``: the layers that each replica of ``path`` runs. ``ends``, ``readies``: the times at which its
    last operation at each stage, and the two before it, ended and could begin; ``slack``: how much later that
    operation came to the replica than this was free, and the same for the operation before. ``seen``: rounds
    since the last change. ``told``: rounds that are booked and not reported yet.
    """

    __slots__ = (
        "_kept", "batch", "ends", "fresh", "index", "lane", "path", "readies", "ready", "seen", "slack",
        "spans", "stage", "stages", "told",
    )  # fmt: skip

    def __init__(self, index: int, path: tuple[int, ...], spans: tuple[Span, ...], batch: MicroBatch) -> None:
        self.index = index
        self.path = path
        self.spans = spans
        self.stages = len(path)
        self.batch = batch
        self.lane = batch.lane
        self.stage = self.ready = self.seen = self.told = 0
        self.fresh = True
        self.ends = [(0, 0, 0)] * self.stages
        self.readies = [(0, 0, 0)] * self.stages
        self.slack = [(0, 0)] * self.stages
        self._kept = (0, 0, True)

    def keep(self) -> None:
        """Save the present state for ``back``."""
        self.lane.keep()
        self._kept = (self.stage, self.ready, self.fresh)

    def back(self) -> None:
        """Restore the state of the last ``keep``, without the observed rounds."""
        self.lane.back()
        self.stage, self.ready, self.fresh = self._kept
        self.seen = 0

    def note(self, stage: int, ready: int, late: int, end: int) -> None:
        """Note an operation: when it came, how much later than its replica was free, when it ends."""
        one, two, _ = self.ends[stage]
        self.ends[stage] = (end, one, two)
        one, two, _ = self.readies[stage]
        self.readies[stage] = (ready, one, two)
        self.slack[stage] = (late, self.slack[stage][0])

    def curve(self) -> int:
        """By how much a round takes longer than the one before it."""
        end, last_end, two = self.ends[-1]
        return end - 2 * last_end + two

    def straight(self, rounds: int, curve: int) -> int:
        """For how many more of these rounds each operation keeps its reason to wait, with a common curve."""
        for stage in range(self.stages):
            end, last_end, two = self.ends[stage]
            ready, ready_1, ready_2 = self.readies[stage]
            if end - 2 * last_end + two != curve or ready - 2 * ready_1 + ready_2 != curve:
                return 0
            rounds = same_side(*self.slack[stage], rounds)
        return rounds

    def jump(self, rounds: int, curve: int) -> None:
        """Advance every operation by ``rounds``."""
        lane, (end, one, _) = self.lane, self.ends[-1]
        growth = end - one
        if self.stage == 0 and not self.fresh:  # the end of its last round is not counted yet
            first = growth
            lane.done = later(end, growth, rounds, curve)
        else:
            first = growth + curve
            lane.done += rounds * first + curve * (rounds * (rounds - 1) >> 1)
        lane.jumped(first, curve, rounds)
        lane.begun(rounds)
        self.ready = later(self.ready, self.ready - self.readies[self.stage][0], rounds, curve)
        for points in (self.ends, self.readies):
            for stage in range(self.stages):
                newest, before, _ = points[stage]
                step = newest - before + rounds * curve
                newest = later(newest, newest - before, rounds, curve)
                points[stage] = (newest, newest - step, newest - 2 * step + curve)
        for stage in range(self.stages):
            slack, before = self.slack[stage]
            change = slack - before
            self.slack[stage] = (slack + rounds * change, slack + (rounds - 1) * change)


def later(newest: int, growth: int, rounds: int, curve: int) -> int:
    """The value of a parabola ``rounds`` later; ``growth``: its last step."""
    return newest + rounds * growth + curve * (rounds * (rounds + 1) >> 1)


# Batches that circulate on paths of stage replicas in virtual time: a cyclic job shop in fixed point.
# Each replica runs one pass at a time, in the order in which batches arrive (at one moment: by their
# number). A batch begins its next round on the same path when its last round has ended. All of this is
# additions and maxima of integers, without events. An operation waits either for its batch or for its
# replica. If all batches keep their order and every operation keeps its reason, the times lie on parabolas
# of one curvature. Such rounds are added up at once, as in ``FlowShop``, whose batches share one path.

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

    def enter(self, path_lane: PathLane, release: int) -> None:
        """Let a batch begin rounds, the first one at ``release``."""
        self.lanes[path_lane.index] = path_lane
        path_lane.stage, path_lane.ready, path_lane.fresh = 0, release, True
        path_lane.lane.done = release
        heappush(self._due, (release, path_lane.index))
        for replica in path_lane.path:
            self.free.setdefault(replica, 0)
            self.work.setdefault(replica, 0)
        self._changed()

    def drop(self, index: int) -> PathLane:
        """Remove a batch."""
        path_lane = self.lanes.pop(index)
        self._order()
        self._changed()
        return path_lane

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
            path_lane = lanes[due[0][1]]
            if path_lane.stage == 0 and not path_lane.fresh:
                lane = path_lane.lane
                lane.ended(lane.done - lane.last, 0, 1)
                if lane.left <= 0 or self.cut:
                    heappop(due)
                    return path_lane
                if lane.line == 0:
                    lane.find_line()
                    path_lane.seen = -1
                path_lane.seen += 1
                path_lane.fresh = True
                if self._looks(path_lane) and self._jump(until):
                    due = self._due
                    continue
            heappop(due)
            self._operate(path_lane)
        return None

    def _operate(self, path_lane: PathLane) -> None:
        """Run the next stage of a batch."""
        stage, ready, lane, free = path_lane.stage, path_lane.ready, path_lane.lane, self.free
        replica, cost = path_lane.path[stage], lane.stage_steps[stage].cost
        late = ready - free[replica]
        end = (ready if late >= 0 else free[replica]) + cost
        free[replica] = end
        self.work[replica] += cost
        path_lane.note(stage, ready, late, end)
        path_lane.fresh = False
        if stage + 1 < path_lane.stages:
            path_lane.stage, path_lane.ready = stage + 1, end + lane.stage_steps[stage + 1].hop
        else:
            path_lane.stage, path_lane.ready = 0, end
            lane.done = end
            lane.begun(1)
        heappush(self._due, (path_lane.ready, path_lane.index))

    def _looks(self, path_lane: PathLane) -> bool:
        """Whether to search for a curve now; less often after searches without success."""
        if path_lane.seen < ROUNDS_SEEN or path_lane.index != min(self.lanes):
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

    def _worked(self, path_lane: PathLane, rounds: int) -> None:
        lane, growth = path_lane.lane, rounds * (rounds - 1) >> 1
        for stage, replica in enumerate(path_lane.path):
            # If this stage of the round in progress is already computed, its next operation comes first.
            step = lane.stage_steps[stage]
            first = step.cost + (step.slope if stage < path_lane.stage else 0)
            self.work[replica] += rounds * first + step.slope * growth

    def _in_order(self, rounds: int, curve: int) -> int:
        """Limit the rounds to those in which all operations keep the order of the last rounds."""
        last = sorted(
            (points[0], lane.index, points) for lane in self.lanes.values() for points in lane.readies
        )
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
        for lane in self.lanes.values():
            ends = [(lane.ready, lane.readies[0][0])] if lane.stage == 0 and lane.fresh else []
            for ready, before in [*[(ready, before) for ready, before, _ in lane.readies], *ends]:
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


CostsOf = Callable[[tuple[int, ...], tuple[Span, ...]], StageCosts]


@dataclass(frozen=True, slots=True)
class PathCosts:
    """``of``: step costs on a path of these GPUs, each of which runs these layers."""

    of: CostsOf


class Circuits:
    """The circuit of one model. ``tell``: called with each report."""

    __slots__ = (
        "_boundary", "_costs", "_gpu_of", "_halted", "_layers_of", "_lives", "_machines", "_planned",
        "_recorder", "_runs", "_tell", "_telling", "_timer", "circuit",
    )  # fmt: skip

    def __init__(
        self,
        costs: PathCosts,
        machines: Mapping[int, Machine],
        *,
        lives: dict[int, Lifetime],
        recorder: Recorder,
        env: Environment,
        timer_rank: int,
        gpu_of: Callable[[int], int],
        layers_of: Callable[[int], Span],
        tell: Callable[[int, Ran], None],
    ) -> None:
        self._costs, self._machines, self._lives, self._recorder = costs, machines, lives, recorder
        self._gpu_of, self._layers_of, self._tell = gpu_of, layers_of, tell
        self._timer = Timer(env, timer_rank, self.due)
        self._telling = False
        self._boundary = 0  # end of the last reported round
        self._planned: PathLane | None = None  # the batch to be reported next
        self._runs: dict[int, Run] = {}  # the last run of each batch
        self._halted: dict[int, tuple[int, ...]] = {}  # requests that decode in halted batches
        self.circuit = Circuit()

    def begin(self, now_ns: int, run: Run) -> None:
        """Let a batch begin on its path."""
        if not self._telling:
            self._go_to(now_ns)
        lane = self.circuit.lanes.get(run.micro_batch)
        spans = run.spans or tuple([self._layers_of(replica) for replica in run.path])
        if lane is not None and (lane.path != run.path or lane.spans != spans):
            assert self._telling and not lane.batch.decoding, "a batch stays on its path"
            self.circuit.drop(run.micro_batch)  # a batch has ended, and another one uses its number
            lane = None
        if lane is None:
            costs = self._costs.of(tuple([self._gpu_of(replica) for replica in run.path]), spans)
            batch = MicroBatch(
                run.path[-1], run.micro_batch, costs, lives=self._lives, recorder=self._recorder
            )
            batch.go_on(self._halted.pop(run.micro_batch, ()), self._boundary)
            lane = PathLane(run.micro_batch, run.path, spans, batch)
        self._runs[run.micro_batch] = run
        lane.batch.begin(run, self._boundary)
        lane.batch.allow(run.max_steps)
        self.circuit.enter(lane, self._boundary)
        if not self._telling:
            self._plan()

    def interrupt(self, now_ns: int) -> None:
        """Report the next round to end, of any batch."""
        if not self.circuit.lanes:
            return
        if not self._telling:
            self._go_to(now_ns)
        self.circuit.cut = True
        if not self._telling:
            self._plan()

    def lose(self, now_ns: int, replica: int) -> None:
        """Lose a replica, and all batches whose path contains it.

        The loss comes after everything that ends at that nanosecond.
        """
        self._go_to(now_ns + 1)
        for index in [number for number, lane in self.circuit.lanes.items() if replica in lane.path]:
            self.circuit.drop(index).batch.clear()
            del self._runs[index]
        self.circuit.stop(replica, now_ns)
        self._timer.cancel()
        self._plan()

    def due(self, now_ns: int) -> None:
        """Report the rounds that have ended; several at one moment in their order."""
        while (planned := self._planned) is not None:
            due_ns = planned.lane.done >> FRACTION_BITS
            if now_ns < due_ns:
                self._timer.at(due_ns)
                return
            self._report(now_ns, planned)

    def _report(self, now_ns: int, lane: PathLane) -> None:
        finished, circuit = list[int](), self.circuit
        self._boundary = lane.lane.done
        self._book(lane, finished)
        circuit.cut = False
        steps, lane.told = lane.told, 0
        run = self._runs.pop(lane.index)
        self._telling = True
        self._tell(now_ns, Ran(run.replica, run.epoch, steps, tuple(finished), micro_batch=lane.index))
        self._telling = False
        if lane.index not in self._runs:
            circuit.drop(lane.index)
            if lane.batch.decoding:
                self._halted[lane.index] = lane.batch.halt(self._boundary)
        self._plan()

    def _go_to(self, now_ns: int) -> None:
        """Book everything that begins before this moment."""
        circuit = self.circuit
        self._boundary = max(self._boundary, now_ns << FRACTION_BITS)
        circuit.back()
        early = circuit.advance(self._boundary)
        assert early is None, "a report was due before"
        self._book(None, [])

    def _book(self, reported: PathLane | None, finished: list[int]) -> None:
        other_lanes = list[int]()
        for lane in self.circuit.lanes.values():
            lane.told += lane.batch.book(finished if lane is reported else other_lanes)
        assert not other_lanes, "a request ended without a report"
        self.circuit.keep()

    def _plan(self) -> None:
        circuit = self.circuit
        circuit.keep()
        one = self._planned = circuit.advance(FOREVER)
        if one is not None:
            self._timer.at(one.lane.done >> FRACTION_BITS)
        else:
            self._busy()

    def _busy(self) -> None:
        """Write each replica's computing time to its machine."""
        for replica, fixed in self.circuit.work.items():
            self._machines[replica].busy_ns = fixed >> FRACTION_BITS
