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


class Stage:
    """``free``: when the stage has ended its last step; ``kept``: the same at the last ``keep``."""

    __slots__ = ("free", "kept")

    def __init__(self) -> None:
        self.free = self.kept = 0


class StageStep:
    """The steps of a batch at one stage. Attributes, as a native core adds them without making objects.

    ``cost``: time of the next step to begin; ``slope``: by how much each later one takes longer; ``hop``:
    time of the activations to the stage. ``end``: when the step in progress ends; ``end_1``, ``end_2``: the
    same for the two steps before. ``kept_...``: the same at the last ``keep``.
    """

    __slots__ = (
        "cost", "end", "end_1", "end_2", "hop", "kept_cost", "kept_end", "kept_hop", "kept_slope", "slope",
    )  # fmt: skip

    def __init__(self) -> None:
        self.cost = self.slope = self.hop = 0
        self.end = self.end_1 = self.end_2 = 0
        self.kept_cost = self.kept_slope = self.kept_hop = self.kept_end = 0


class Lane:
    """``stage_steps``: its next step, and the last ones, stage by stage.

    ``done``: when the step in progress ends; ``last``: when the one before it ended. ``steps``: how many have
    ended since the last report; ``left``: how many more may end, the last of which is reported. ``line``: for
    how many steps the costs stay on their line. ``total``, ``growth_each``: computing time of the next step
    at all stages, and its growth per step; ``hops``: time of its activations between all stages.
    ``growth``, ``curve``: how much later the step in progress ends than the one before it, and by how much
    that changes from one step to the next, as of ``bend``.

    ``origin``: the zero of the lane's times, so that a native core adds machine words: in fixed point at most
    275 s fit into one.
    """

    __slots__ = (
        "_count", "_first", "_gaps", "_kept_context", "_kept_done", "_kept_growth_each", "_kept_hops",
        "_kept_last", "_kept_line", "_kept_then", "_kept_total", "_pieces", "_slope", "_then", "_tokens",
        "context", "curve", "done", "growth", "growth_each", "hops", "index", "last", "left", "line",
        "origin", "stage_steps", "steps", "total",
    )  # fmt: skip

    def __init__(self, index: int, stages: int) -> None:
        self.index = index
        self.stage_steps = [StageStep() for _ in range(stages)]
        self.done = self.last = self.origin = 0
        self.total = self.growth_each = self.hops = 0
        self.steps = self.left = self.line = 0
        self.growth = self.curve = 0
        self._gaps: list[Gaps] = []
        self._first = self._slope = self._count = 0  # the newest of the gaps, still without those
        self._tokens = self.context = 0  # decode steps: sequences, and the context of the next one
        self._pieces: tuple[StagePiece, ...] = ()
        self._then: Decodes | None = None  # the decode steps after a step with prompts
        self._kept_done = self._kept_last = self._kept_line = self._kept_context = 0
        self._kept_total = self._kept_growth_each = self._kept_hops = 0
        self._kept_then: Decodes | None = None

    def gaps(self) -> list[Gaps]:
        """Times between the ends of the steps that have ended since the last report."""
        if self._count:
            self._gaps.append((self._first, self._slope, self._count))
            self._count = 0
        return self._gaps

    def set_step(self, costs: tuple[int, ...], hops: tuple[int, ...]) -> None:
        """Set the next step; it is reported unless ``then_decodes`` gives the steps that follow."""
        total = 0
        for part, cost in zip(self.stage_steps, costs):
            part.cost, part.slope = cost, 0
            total += cost
        self.total, self.growth_each = total, 0
        self._set_hops(hops)
        self.line, self._tokens = 1, 0
        self._then = None

    def _set_hops(self, hops: tuple[int, ...]) -> None:
        whole = 0
        for part, hop in zip(self.stage_steps, hops):
            part.hop = hop
            whole += hop
        self.hops = whole

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
        self._set_hops(rows.hops(sequences))
        self.find_line()

    def find_line(self) -> None:
        """Compute the costs of the next decode step from the piece for its context."""
        if self._then is not None:
            self._pieces, hops, self._tokens, self.context = self._then
            self._set_hops(hops)
            self._then = None
        context, sequences = self.context, self._tokens
        for limit, intercepts, slopes in self._pieces:
            if context <= limit:
                total = growth = 0
                for part, intercept, slope in zip(self.stage_steps, intercepts, slopes):
                    part.cost = cost = intercept + slope * context
                    part.slope = slope = slope * sequences
                    total += cost
                    growth += slope
                self.total, self.growth_each = total, growth
                self.line = (limit - context) // sequences + 1
                return
        raise UserError(
            f"a stage decodes {sequences} sequences with {context} tokens of context, beyond the "
            f"{self._pieces[-1][0]} its step-time model answers for: write a smaller engine.kv_tokens"
        )

    def told(self) -> None:
        """The ended steps are booked."""
        self.steps = self._count = 0
        if self._gaps:
            self._gaps = []

    def keep(self) -> None:
        """Save the present state for ``back``."""
        self.told()
        self._kept_done, self._kept_last = self.done, self.last
        self._kept_line, self._kept_context = self.line, self.context
        self._kept_total, self._kept_growth_each = self.total, self.growth_each
        self._kept_hops, self._kept_then = self.hops, self._then
        for part in self.stage_steps:
            part.kept_cost, part.kept_slope = part.cost, part.slope
            part.kept_hop, part.kept_end = part.hop, part.end

    def back(self) -> None:
        """Restore the state of the last ``keep``."""
        self.done, self.last = self._kept_done, self._kept_last
        self.line, self.context = self._kept_line, self._kept_context
        self.total, self.growth_each = self._kept_total, self._kept_growth_each
        self.hops = self._kept_hops
        for part in self.stage_steps:
            part.cost, part.slope = part.kept_cost, part.kept_slope
            part.hop, part.end = part.kept_hop, part.kept_end
        if self._kept_then is not None:
            self._then = self._kept_then
            self._tokens = 0
        self.left += self.steps
        self.told()

    def shift(self, by: int) -> None:
        """Move the zero of its times ``by`` later."""
        self.origin += by
        self.done -= by
        self.last -= by
        for part in self.stage_steps:
            part.end -= by
            part.end_1 -= by
            part.end_2 -= by

    def go(self, release: int, stages: list[Stage]) -> None:
        """Begin the next step, not before ``release``.

        A single loop: a pipelined run spends its time here.
        """
        at = release
        for part, stage in zip(self.stage_steps, stages):
            at += part.hop
            free = stage.free
            if at < free:
                at = free
            cost = part.cost
            part.cost = cost + part.slope
            at += cost
            part.end_2 = part.end_1
            part.end_1 = part.end
            part.end = stage.free = at
        self.done = at
        self.total += self.growth_each
        self.line -= 1
        self.context += self._tokens

    def earliest_end(self) -> int:
        """A lower bound for the end of the last remaining step."""
        steps, line = self.left - 1, self.line
        first, slope = self.total + self.hops, self.growth_each
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
        for part in self.stage_steps:
            part.cost += steps * part.slope

    def end(self) -> None:
        """End the step in progress."""
        done = self.done
        self._gap(done - self.last, 0, 1)
        self.last = done
        self.steps += 1
        self.left -= 1

    def undo_end(self) -> None:
        """The step that ``end`` has just ended does not end."""
        self._count -= 1
        self.last -= self._first + self._slope * self._count
        self.steps -= 1
        self.left += 1

    def computing_after(self, at: int) -> int:
        """Computing time of the step in progress that comes after a moment, at all stages."""
        found = 0
        for part in self.stage_steps:
            found += min(max(0, part.end - at), part.cost - part.slope)
        return found

    def ended(self, wait: int, first: int, steps: int, slope: int = 0) -> None:
        """End steps: the one in progress after ``wait``, the others on a line."""
        self._gap(wait, 0, 1)
        self.last = self.done
        if steps > 1:
            self._gap(first, slope, steps - 1)
            self.last += (steps - 1) * first + slope * ((steps - 1) * (steps - 2) >> 1)
        self.steps += steps
        self.left -= steps

    def jumped(self, first: int, slope: int, steps: int) -> None:
        """End steps of which each begins when the one before it ends."""
        self._gap(first, slope, steps)
        self.last += steps * first + slope * (steps * (steps - 1) >> 1)
        self.steps += steps
        self.left -= steps

    def _gap(self, first: int, slope: int, count: int) -> None:
        """Add gaps: to the newest ones where all lie on one line, which becomes no shorter."""
        known = self._count
        if known:
            newest = self._first
            if known == 1 and first >= newest and (count == 1 or first == newest + slope):
                self._slope, self._count = first - newest, count + 1
                return
            if first == newest + self._slope * known and (count == 1 or slope == self._slope):
                self._count = known + count
                return
            self._gaps.append((newest, self._slope, known))
        self._first, self._slope, self._count = first, slope, count

    def bend(self) -> int:
        """Note its ``growth`` and ``curve``; returns the latter."""
        part = self.stage_steps[-1]
        self.growth = growth = part.end - part.end_1
        self.curve = curve = growth - part.end_1 + part.end_2
        return curve

    def straight(self, rounds: int, ahead: "Lane", ago: bool) -> int:
        """For how many more of these rounds every stage keeps its reason to wait, all with its ``curve``.

        ``ahead``: the batch ahead, which has the same curve if it waits for that one. ``ago``: it is ahead
        with the step before its last one.
        """
        curve = self.curve
        apart, last = curve - ahead.curve, self.stage_steps[-1]
        at, at_1 = last.end_1, last.end_2
        for part, other in zip(self.stage_steps, ahead.stage_steps):
            end, end_1 = part.end, part.end_1
            if end - 2 * end_1 + part.end_2 != curve:
                return 0
            free, free_1 = other.end, other.end_1
            if ago:
                free, free_1 = free_1, other.end_2
            # By how much the last step came after the stage was free, and the same for the step before.
            slack = at + part.hop - free
            slack_1 = at_1 + part.hop - free_1
            at, at_1 = end, end_1
            if not apart:
                rounds = same_side(slack, slack_1, rounds)
                continue
            if slack < 0 or slack_1 < 0:
                return 0
            growth = slack - slack_1 + apart
            rounds = rounds_not_negative(slack + growth, growth + apart, apart, rounds)
        return rounds

    def jump(self, rounds: int) -> int:
        """Advance by ``rounds`` with its ``growth`` and ``curve``; returns their computing time."""
        growth, curve = rounds - 1, self.curve
        self.ended(self.done - self.last, self.growth + curve, rounds, curve)
        triangle = rounds * growth >> 1
        for part in self.stage_steps:
            step = part.end - part.end_1 + rounds * curve
            part.end = end = part.end + rounds * step - curve * triangle
            part.end_1 = end - step
            part.end_2 = part.end_1 - step + curve
        computed = rounds * self.total + self.growth_each * triangle
        self.done = self.stage_steps[-1].end
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
