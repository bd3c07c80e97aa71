"""One batch that goes round a path of stage replicas, as these see it: where it is, and its last rounds."""

from serving.vocabulary.actions import Span
from simcore.pipeline.lane import same_side
from simcore.pipeline.micro_batch import MicroBatch

ROUNDS_SEEN = 3  # a parabola is known by three of its points


class PathLane:
    """``stage``: that it comes to next, at ``ready``. ``fresh``: it has not begun the round it was asked for.

    ``spans``: the layers that each replica of ``path`` runs.

    ``ends``, ``readies``: of its last operation at each stage and of the two before it; ``slack``: by how
    much that operation came later to the replica than this was free, and the one before it. ``seen``: rounds
    since anything changed. ``told``: rounds that ended and are booked, and not reported yet.
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
        """What was done so far is booked; ``back`` returns here."""
        self.lane.keep()
        self._kept = (self.stage, self.ready, self.fresh)

    def back(self) -> None:
        """Nothing was done since ``keep``. What was seen of its rounds is forgotten."""
        self.lane.back()
        self.stage, self.ready, self.fresh = self._kept
        self.seen = 0

    def note(self, stage: int, ready: int, late: int, end: int) -> None:
        """An operation of its round: when it came, by how much later than needed, when it ends."""
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
        """For how many more of these rounds each operation waits for the same, and the curve is common."""
        for stage in range(self.stages):
            end, one, two = self.ends[stage]
            ready, ready_1, ready_2 = self.readies[stage]
            if end - 2 * one + two != curve or ready - 2 * ready_1 + ready_2 != curve:
                return 0
            rounds = same_side(*self.slack[stage], rounds)
        return rounds

    def jump(self, rounds: int, curve: int) -> None:
        """So many rounds more of every operation."""
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
    """Where a parabola is so many rounds on; ``growth``: its last step."""
    return newest + rounds * growth + curve * (rounds * (rounds + 1) >> 1)
