"""One batch in flight as the stages see it: what its next step takes at each of them."""

from serving.vocabulary.errors import UserError
from simcore.pipeline.parabola import rounds_not_negative
from simcore.pipeline.stage_costs import StageCosts, StagePiece

Decodes = tuple[tuple[StagePiece, ...], tuple[int, ...], int, int]
"""(pieces, hops, sequences, context) of decode steps."""
Gaps = tuple[int, int, int]
"""(first, slope, count): so many steps, each that much longer than the one before, in fixed point."""


class Lane:
    """costs, slopes: of the next step to begin, and by how much every further one is longer.

    ``done``: when the step in progress ends; ``last``: when the one before it ended. ``steps``: how many have
    ended since the last report; ``left``: how many more may end, the last of them to be reported. ``line``:
    for how many steps to begin the costs are on their straight line. ``gaps``: what lies between the ends of
    the steps that have ended. ``ends``: when the step in progress ends at each stage. ``total``,
    ``growth_each``: what the next step computes at all stages, and by how much every further one does more.

    ``origin``: what the lane's times count from, so that a native core adds machine words: in fixed point
    275 s are as long as fit one.
    """

    __slots__ = (
        "_ends_1", "_ends_2", "_kept", "_kept_costs", "_kept_then", "_pieces", "_then", "_tokens", "context",
        "costs", "done", "ends", "gaps", "growth_each", "hops", "index", "last", "left", "line", "origin",
        "slopes", "stages", "steps", "total",
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
        self._tokens = self.context = 0  # decode steps: sequences, and the context in the next one to begin
        self._pieces: tuple[StagePiece, ...] = ()
        self._then: Decodes | None = None  # what follows on a step with prompts
        self.ends = [0] * stages
        self._ends_1 = [0] * stages  # the same of the two steps before
        self._ends_2 = [0] * stages
        self._kept = (0, 0, 0, 0, 0, 0)
        self._kept_costs: tuple[list[int], tuple[int, ...]] = ([], ())
        self._kept_then: tuple[Decodes, tuple[int, ...]] | None = None

    def set_step(self, costs: tuple[int, ...], hops: tuple[int, ...]) -> None:
        """The next step, which is to be reported unless it is said what follows (``then_decodes``)."""
        self.costs = list(costs)
        self.slopes = (0,) * self.stages
        self.total, self.growth_each = sum(costs), 0
        self.hops = hops
        self.line, self._tokens = 1, 0
        self._then = None

    def then_decodes(self, rows: StageCosts, sequences: int, context: int) -> None:
        """The steps after the next one decode so many sequences."""
        self._then = (rows.decode(sequences), rows.hops(sequences), sequences, context)

    def set_decodes(
        self, rows: StageCosts, sequences: int, context: int, generated: int = 0, token: int = 0
    ) -> None:
        """The next steps decode so many sequences.

        ``generated``: what the tokens that they have generated add to the next step, at the last stage, where
        they are sampled; ``token``: each one that comes.
        """
        self._tokens, self.context, self._then = sequences, context, None
        pieces = rows.decode(sequences)
        self._pieces = with_output(pieces, generated - token * context, token) if token else pieces
        self.hops = rows.hops(sequences)
        self.find_line()

    def find_line(self) -> None:
        """The costs of the next decode step, by the piece that holds for its context."""
        if self._then is not None:
            self._pieces, self.hops, self._tokens, self.context = self._then
            self._then = None
        context, sequences = self.context, self._tokens
        for limit, intercepts, slopes in self._pieces:
            if context <= limit:
                self.costs = [one + slope * context for one, slope in zip(intercepts, slopes)]
                self.slopes = tuple([slope * sequences for slope in slopes])
                self.total, self.growth_each = sum(self.costs), sum(self.slopes)
                self.line = (limit - context) // sequences + 1
                return
        raise UserError(
            f"a stage decodes {sequences} sequences with {context} tokens of context, beyond the "
            f"{self._pieces[-1][0]} its step-time model answers for: write a smaller engine.kv_tokens"
        )

    def told(self) -> None:
        """The steps that have ended are booked."""
        self.steps = 0
        self.gaps = []

    def keep(self) -> None:
        """What was done so far is booked; ``back`` returns here."""
        self.steps = 0
        self.gaps = []
        self._kept = (self.done, self.last, self.line, self.context, self.total, self.growth_each)
        self._kept_costs = (list(self.costs), self.slopes)
        self._kept_then = None if self._then is None else (self._then, self.hops)

    def back(self) -> None:
        """Nothing was done since ``keep``."""
        self.done, self.last, self.line, self.context, self.total, self.growth_each = self._kept
        costs, self.slopes = self._kept_costs
        self.costs = list(costs)
        if self._kept_then is not None:
            self._then, self.hops = self._kept_then
            self._tokens = 0
        self.left += self.steps
        self.steps = 0
        self.gaps = []

    def shift(self, by: int) -> None:
        """Its times count from that much later."""
        self.origin += by
        self.done -= by
        self.last -= by
        self.ends = [end - by for end in self.ends]
        self._ends_1 = [end - by for end in self._ends_1]
        self._ends_2 = [end - by for end in self._ends_2]

    def go(self, release: int, free: list[int]) -> None:
        """The next step begins, not before ``release``. ``free``: when each stage is.

        One loop does it all: this is where a pipelined run spends its time.
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
        """A time before which the last of the steps that are left surely does not end."""
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
        """So many steps have begun that had not."""
        self.line -= steps
        self.context += steps * self._tokens
        self.total += steps * self.growth_each
        if self.line:
            costs, slopes = self.costs, self.slopes
            for stage in range(self.stages):
                costs[stage] += steps * slopes[stage]

    def end(self) -> None:
        """The step in progress has ended."""
        done = self.done
        self.gaps.append((done - self.last, 0, 1))
        self.last = done
        self.steps += 1
        self.left -= 1

    def ended(self, wait: int, first: int, steps: int, slope: int = 0) -> None:
        """So many steps have ended: the one in progress after ``wait``, the others on a line."""
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
        """By how much that grows from one step to the next."""
        return self.ends[-1] - 2 * self._ends_1[-1] + self._ends_2[-1]

    def straight(self, rounds: int, curve: int, before: int, free: list[int], free_1: list[int]) -> int:
        """For how many more of these rounds each stage is waited for by the same.

        ``curve``: common to its stages; ``before``: that of the batch before it, which is its own where it
        waits for that one. ``free``, ``free_1``: when each stage was, before its last step
        and before the one before.
        """
        ends, one, two, hops = self.ends, self._ends_1, self._ends_2, self.hops
        apart, at, at_1 = curve - before, one[-1], two[-1]
        for stage in range(self.stages):
            if ends[stage] - 2 * one[stage] + two[stage] != curve:
                return 0
            # By how much the last step came later to the stage than that was free, and the one before it.
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
        """When it left each stage, in its last step or, ``ago`` being 1 or 2, in one before it."""
        return self.ends if not ago else self._ends_1 if ago == 1 else self._ends_2

    def jump(self, rounds: int, curve: int) -> int:
        """So many rounds more; returns what they computed. ``curve``: as for ``straight``."""
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
    """``base`` and ``token`` for each token of context are added to the last stage's part."""
    return tuple(
        [
            (limit, (*intercepts[:-1], intercepts[-1] + base), (*slopes[:-1], slopes[-1] + token))
            for limit, intercepts, slopes in pieces
        ]
    )


def same_side(slack: int, before: int, rounds: int) -> int:
    """For how many of ``rounds`` more a slack that goes on as it went from ``before`` keeps its sign."""
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
