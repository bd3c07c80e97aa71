"""One batch in flight as the stages see it: the costs of its next step at each stage."""

from math import sqrt

from serving.vocabulary.errors import UserError
from simcore.pipeline.stage_costs import StageCosts, StagePiece

# For how many steps a parabola surely stays at or above zero, in integers.


def rounds_not_negative(value: int, change: int, curve: int, rounds: int) -> int:
    """How many k from 0 on, below ``rounds``, surely have value + change k + curve k (k - 1) / 2 >= 0."""
    if value < 0 or rounds < 1:
        return 0
    if curve >= 0:
        return rounds if change >= 0 else min(rounds, value // -change + 1)
    last = rounds - 1
    if value + change * last + (curve * (last * (last - 1)) >> 1) >= 0:
        return rounds  # it lies above a chord
    half = change - curve / 2
    last = min(last, int((half + sqrt(half * half - 2.0 * curve * value)) / -curve))
    while value + change * last + (curve * (last * (last - 1)) >> 1) < 0:
        last -= 1
    return last + 1


Decodes = tuple[tuple[StagePiece, ...], tuple[int, ...], int, int]
"""(pieces, hops, sequences, context) of decode steps."""
Gaps = tuple[int, int, int]
"""(first, slope, count): so many steps, each that much longer than the one before, in fixed point."""


class Lane:
    """``costs``: times of the next step to begin. ``slopes``: by how much each later step takes longer.

    ``done``: when the step in progress ends; ``last``: when the one before it ended. ``steps``: how many have
    ended since the last report; ``left``: how many more may end, the last of which is reported. ``line``: for
    how many steps the costs stay on their line. ``gaps``: times between the ends of ended steps. ``ends``:
    when the step in progress ends at each stage. ``total``, ``growth_each``: computing time of the next step
    at all stages, and its growth per step.

    ``origin``: the zero of the lane's times, so that a native core adds machine words: in fixed point at most
    275 s fit into one.
    """

    __slots__ = (
        "_ends_1", "_ends_2", "_kept", "_kept_costs", "_kept_ends", "_kept_then", "_pieces", "_then",
        "_tokens", "context", "costs", "done", "ends", "gaps", "growth_each", "hops", "index", "last", "left",
        "line", "origin", "slopes", "stages", "steps", "total",
    )  # fmt: skip

    def __init__(self, index: int, stages: int) -> None:
        self.index = index
        self.stages = stages
        self.costs = [0] * stages
        self.slopes: tuple[int, ...] = (0,) * stages
        self.hops: tuple[int, ...] = (0,) * stages
        self.done = self.last = self.origin = 0
        self.total = self.growth_each = 0
        self.steps = self.left = self.line = 0
        self.gaps: list[Gaps] = []
        self._tokens = self.context = 0  # decode steps: sequences, and the context of the next one
        self._pieces: tuple[StagePiece, ...] = ()
        self._then: Decodes | None = None  # the decode steps after a step with prompts
        self.ends = [0] * stages
        self._ends_1 = [0] * stages  # the same for the two steps before
        self._ends_2 = [0] * stages
        self._kept = (0, 0, 0, 0, 0, 0)
        self._kept_costs: tuple[list[int], tuple[int, ...]] = ([], ())
        self._kept_ends = self.ends
        self._kept_then: tuple[Decodes, tuple[int, ...]] | None = None

    def set_step(self, costs: tuple[int, ...], hops: tuple[int, ...]) -> None:
        """Set the next step; it is reported unless ``then_decodes`` gives the steps that follow."""
        self.costs = list(costs)
        self.slopes = (0,) * self.stages
        self.total, self.growth_each = sum(costs), 0
        self.hops = hops
        self.line, self._tokens = 1, 0
        self._then = None

    def then_decodes(self, rows: StageCosts, sequences: int, context: int) -> None:
        """Set the steps after the next one: decodes of ``sequences`` sequences."""
        self._then = (rows.decode(sequences), rows.hops(sequences), sequences, context)

    def set_decodes(
        self, rows: StageCosts, sequences: int, context: int, generated: int = 0, token: int = 0
    ) -> None:
        """Set the next steps: decodes of ``sequences`` sequences.

        ``generated``: what their generated tokens add to the next step, at the last stage, where they are
        sampled; ``token``: what each later token adds.
        """
        self._tokens, self.context, self._then = sequences, context, None
        pieces = rows.decode(sequences)
        self._pieces = with_output(pieces, generated - token * context, token) if token else pieces
        self.hops = rows.hops(sequences)
        self.find_line()

    def find_line(self) -> None:
        """Compute the costs of the next decode step from the piece for its context."""
        if self._then is not None:
            self._pieces, self.hops, self._tokens, self.context = self._then
            self._then = None
        context, sequences = self.context, self._tokens
        for limit, intercepts, slopes in self._pieces:
            if context <= limit:
                self.costs = [piece + slope * context for piece, slope in zip(intercepts, slopes)]
                self.slopes = tuple([slope * sequences for slope in slopes])
                self.total, self.growth_each = sum(self.costs), sum(self.slopes)
                self.line = (limit - context) // sequences + 1
                return
        raise UserError(
            f"a stage decodes {sequences} sequences with {context} tokens of context, beyond the "
            f"{self._pieces[-1][0]} its step-time model answers for: write a smaller engine.kv_tokens"
        )

    def told(self) -> None:
        """The ended steps are booked."""
        self.steps = 0
        self.gaps = []

    def keep(self) -> None:
        """Save the present state for ``back``."""
        self.steps = 0
        self.gaps = []
        self._kept = (self.done, self.last, self.line, self.context, self.total, self.growth_each)
        self._kept_costs = (list(self.costs), self.slopes)
        self._kept_ends = list(self.ends)
        self._kept_then = None if self._then is None else (self._then, self.hops)

    def back(self) -> None:
        """Restore the state of the last ``keep``."""
        self.done, self.last, self.line, self.context, self.total, self.growth_each = self._kept
        costs, self.slopes = self._kept_costs
        self.costs = list(costs)
        self.ends = list(self._kept_ends)
        if self._kept_then is not None:
            self._then, self.hops = self._kept_then
            self._tokens = 0
        self.left += self.steps
        self.steps = 0
        self.gaps = []

    def shift(self, by: int) -> None:
        """Move the zero of its times ``by`` later."""
        self.origin += by
        self.done -= by
        self.last -= by
        self.ends = [end - by for end in self.ends]
        self._ends_1 = [end - by for end in self._ends_1]
        self._ends_2 = [end - by for end in self._ends_2]

    def go(self, release: int, free: list[int]) -> None:
        """Begin the next step, not before ``release``. ``free``: when each stage is free.

        A single loop: a pipelined run spends its time here.
        """
        ends = self._ends_2
        self._ends_2, self._ends_1, self.ends = self._ends_1, self.ends, ends
        costs, slopes, hops = self.costs, self.slopes, self.hops
        at = release
        for stage in range(self.stages):
            at += hops[stage]
            begin = free[stage]
            if at < begin:
                at = begin
            cost = costs[stage]
            costs[stage] = cost + slopes[stage]
            at += cost
            ends[stage] = free[stage] = at
        self.done = at
        self.total += self.growth_each
        self.line -= 1
        self.context += self._tokens

    def earliest_end(self) -> int:
        """A lower bound for the end of the last remaining step."""
        steps, line = self.left - 1, self.line
        first, slope = self.total + sum(self.hops), self.growth_each
        if self._then is not None and not line:
            pieces, hops, sequences, context = self._then
            limit, intercepts, slopes = pieces[0]
            line = max(0, limit - context + sequences) // sequences
            first, slope = sum(intercepts) + sum(slopes) * context + sum(hops), sum(slopes) * sequences
        if line < steps:
            steps = line
        return self.done + steps * first + slope * (steps * (steps - 1) >> 1)

    def begun(self, steps: int) -> None:
        """Note that ``steps`` more steps have begun."""
        self.line -= steps
        self.context += steps * self._tokens
        self.total += steps * self.growth_each
        costs, slopes = self.costs, self.slopes
        for stage in range(self.stages):
            costs[stage] += steps * slopes[stage]

    def end(self) -> None:
        """End the step in progress."""
        done = self.done
        self.gaps.append((done - self.last, 0, 1))
        self.last = done
        self.steps += 1
        self.left -= 1

    def undo_end(self) -> None:
        """The step that ``end`` has just ended does not end."""
        wait, _, _ = self.gaps.pop()
        self.last -= wait
        self.steps -= 1
        self.left += 1

    def computing_after(self, at: int) -> int:
        """Computing time of the step in progress that comes after a moment, at all stages."""
        found = 0
        for end, cost, slope in zip(self.ends, self.costs, self.slopes):
            found += min(max(0, end - at), cost - slope)
        return found

    def ended(self, wait: int, first: int, steps: int, slope: int = 0) -> None:
        """End steps: the one in progress after ``wait``, the others on a line."""
        self.gaps.append((wait, 0, 1))
        self.last = self.done
        if steps > 1:
            self.gaps.append((first, slope, steps - 1))
            self.last += (steps - 1) * first + slope * ((steps - 1) * (steps - 2) >> 1)
        self.steps += steps
        self.left -= steps

    def growth(self) -> int:
        """How much later the step in progress ends than the one before it."""
        return self.ends[-1] - self._ends_1[-1]

    def curve(self) -> int:
        """By how much the growth changes from one step to the next."""
        return self.ends[-1] - 2 * self._ends_1[-1] + self._ends_2[-1]

    def straight(self, rounds: int, curve: int, before: int, free: list[int], free_1: list[int]) -> int:
        """For how many more of these rounds every stage keeps its reason to wait.

        ``curve``: common to its stages; ``before``: curve of the batch ahead, equal to its own if it waits
        for that one. ``free``, ``free_1``: when each stage was free before its last step and before the one
        before.
        """
        ends, one, two, hops = self.ends, self._ends_1, self._ends_2, self.hops
        apart, at, at_1 = curve - before, one[-1], two[-1]
        for stage in range(self.stages):
            if ends[stage] - 2 * one[stage] + two[stage] != curve:
                return 0
            # By how much the last step came after the stage was free, and the same for the step before.
            slack = at + hops[stage] - free[stage]
            slack_1 = at_1 + hops[stage] - free_1[stage]
            at, at_1 = ends[stage], one[stage]
            if not apart:
                rounds = same_side(slack, slack_1, rounds)
                continue
            if slack < 0 or slack_1 < 0:
                return 0
            growth = slack - slack_1 + apart
            rounds = rounds_not_negative(slack + growth, growth + apart, apart, rounds)
        return rounds

    def freed(self, ago: int) -> list[int]:
        """When it left each stage in its last step, or ``ago`` (1 or 2) steps before."""
        return self.ends if not ago else self._ends_1 if ago == 1 else self._ends_2

    def jump(self, rounds: int, curve: int) -> int:
        """Advance by ``rounds``; returns their computing time. ``curve``: the same as in ``straight``."""
        first, growth = self.growth() + curve, rounds - 1
        self.ended(self.done - self.last, first, rounds, curve)
        ends, one, two = self.ends, self._ends_1, self._ends_2
        for stage in range(self.stages):
            step = ends[stage] - one[stage] + rounds * curve
            ends[stage] += rounds * step - curve * (rounds * growth >> 1)
            one[stage] = ends[stage] - step
            two[stage] = one[stage] - step + curve
        computed = rounds * self.total + self.growth_each * (rounds * growth >> 1)
        self.done = ends[-1]
        self.begun(rounds)
        return computed


def with_output(pieces: tuple[StagePiece, ...], base: int, token: int) -> tuple[StagePiece, ...]:
    """Add ``base``, and ``token`` per token of context, to the last stage's part."""
    return tuple(
        [
            (limit, (*intercepts[:-1], intercepts[-1] + base), (*slopes[:-1], slopes[-1] + token))
            for limit, intercepts, slopes in pieces
        ]
    )


def same_side(slack: int, before: int, rounds: int) -> int:
    """For how many more ``rounds`` a slack that continues its trend from ``before`` keeps its sign."""
    change = slack - before
    if slack > 0:
        if before < 0:
            return 0
        return min(rounds, slack // -change) if change < 0 else rounds
    if slack < 0:
        if before > 0:
            return 0
        return min(rounds, -slack // change) if change > 0 else rounds
    return 0 if change else rounds
