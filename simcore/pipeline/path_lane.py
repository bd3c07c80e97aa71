"""One batch that circulates on a path of stage replicas: its position, and its last rounds."""

from serving.vocabulary.actions import Span
from simcore.pipeline.lane import same_side
from simcore.pipeline.micro_batch import MicroBatch

ROUNDS_SEEN = 3  # three points determine a parabola


class PathLane:
    """``stage``: its next stage, reached at ``ready``. ``fresh``: its requested round has not begun.

    ``spans``: the layers that each replica of ``path`` runs. ``ends``, ``readies``: of its last operation at
    each stage and of the two before it; ``slack``: how much later that operation came to the replica than
    this was free, and the same for the operation before. ``seen``: rounds since the last change. ``told``:
    rounds that are booked and not reported yet.
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
        end, one, two = self.ends[-1]
        return end - 2 * one + two

    def straight(self, rounds: int, curve: int) -> int:
        """For how many more of these rounds each operation keeps its reason to wait, with a common curve."""
        for stage in range(self.stages):
            end, one, two = self.ends[stage]
            ready, ready_1, ready_2 = self.readies[stage]
            if end - 2 * one + two != curve or ready - 2 * ready_1 + ready_2 != curve:
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
        lane.gaps.append((first, curve, rounds))
        lane.last += rounds * first + curve * (rounds * (rounds - 1) >> 1)
        lane.steps += rounds
        lane.left -= rounds
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
