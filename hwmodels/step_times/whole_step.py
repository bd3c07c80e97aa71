"""The rung of whole steps: interpolates a step between measured iterations.

Prompts: seconds = D(tokens) + q * squares, q fitted once, D a line through the remainders at each measured
number of tokens. Decodes: at each measured number of sequences a line through the measured contexts; between
two such numbers the mean of both at the same context of each. A step with both takes the larger start of the
two plus both attentions; where such steps were measured, the sum of a step of each less what the median of
them saves, if that is longer; if the engine runs chunks and decodes one after the other, the sum of all. If
the engine lays a chunk out in its whole prompt, the squares are those of the prompt, and laying takes time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats
from hwmodels.profiles.step_profile import Ints, PromptBlocks, Steps
from hwmodels.step_times.fit import non_negative
from hwmodels.step_times.step_error import ROUGH, StepErrors
from hwmodels.step_times.step_time import Interplay, Piece, StepLimits

# Attention never takes all of a prompt's time: noise above this share goes to the rest.
_MOST_ATTENTION = 0.9


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """Seconds of a step at increasing total contexts; beyond the last the line continues with ``slope_s``."""

    contexts: tuple[float, ...]
    seconds: tuple[float, ...]
    slope_s: float

    def at(self, context: float) -> float:
        """Below the first measured context along the first stretch, but never below 0."""
        if context >= self.contexts[-1]:
            return self.seconds[-1] + self.slope_s * (context - self.contexts[-1])
        if context <= self.contexts[0]:
            return self.seconds[0] - self.first_slope_s * (self.contexts[0] - context)
        at = bisect_right(self.contexts, context) - 1
        share = (context - self.contexts[at]) / (self.contexts[at + 1] - self.contexts[at])
        return self.seconds[at] + share * (self.seconds[at + 1] - self.seconds[at])

    @property
    def first_slope_s(self) -> float:
        """Slope of the first stretch; at most that of a line from 0."""
        slope_s = self.slope_s
        if len(self.contexts) > 1:
            slope_s = (self.seconds[1] - self.seconds[0]) / (self.contexts[1] - self.contexts[0])
        return min(slope_s, self.seconds[0] / self.contexts[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStepModel:
    """Implements StepModel. ``sequences``: of each decode line; ``tokens`` and ``dense``: D.

    ``apart``: D is of one chunk, and chunks and decodes run one after the other. ``blocks``: of a
    `StepProfile`; ``laying_s``: time to lay a chunk out, if it is not its whole prompt. ``saved_s``: by which
    a step with both is shorter than one of each; below 0 if it is longer; None: none was measured.
    """

    sequences: tuple[int, ...]
    lines: tuple[DecodeLine, ...]
    tokens: tuple[float, ...]
    dense: tuple[float, ...]
    square_s: float
    limits: StepLimits
    source: str
    error_band: str
    includes_overhead: bool
    labels: tuple[str, ...] = ()
    errors: StepErrors = ROUGH
    apart: bool = False
    blocks: PromptBlocks | None = None
    laying_s: float = 0.0
    saved_s: float | None = None

    @property
    def interplay(self) -> Interplay | None:
        """None: the attention of a mixed step is the sum of its parts."""
        return None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """The part of a step that does not depend on contexts."""
        if prefill_tokens == 0:
            return self._decode_s(decode_sequences, 0.0)
        if self.apart:
            each = prefill_tokens / prefill_sequences
            if self.blocks is not None:
                each = self.blocks.computed(prefill_tokens, prefill_sequences)
            chunks_s = prefill_sequences * self._dense_s(each)
            return chunks_s + (self._decode_s(decode_sequences, 0.0) if decode_sequences else 0.0)
        if decode_sequences == 0:
            return self._dense_s(prefill_tokens)
        decode_s = self._decode_s(decode_sequences, 0.0)
        longer_s = max(self._dense_s(prefill_tokens + decode_sequences), decode_s)
        if self.saved_s is None:
            return longer_s
        return max(longer_s, self._dense_s(prefill_tokens) + decode_s - self.saved_s)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """Linear between the contexts measured at the numbers of sequences on both sides."""
        n, last = decode_sequences, self.limits.max_context_tokens
        places = self._around(n)
        bends = {
            round(context * n / self.sequences[at]) for at in places for context in self.lines[at].contexts
        }
        ends = [*sorted(bend for bend in bends if 0 < bend < last), last]
        start_s, pieces, before, before_s = self._decode_s(n, 0.0), list[Piece](), 0, 0.0
        for end in ends:
            end_s = max(self._decode_s(n, float(end)) - start_s, before_s)
            slope_s = (end_s - before_s) / (end - before)
            pieces.append(Piece(end, before_s - slope_s * before, slope_s))
            before, before_s = end, end_s
        return tuple(pieces)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The square term, telescoping over a prompt's chunks; if laid out, of a prompt that ends there."""
        if self.blocks is not None:
            laying_s = self.laying_s if cached_tokens else 0.0
            return laying_s + self.square_s * (new_tokens + cached_tokens) ** 2
        return self.square_s * new_tokens * (new_tokens + 2 * cached_tokens)

    def beyond_s(self, start: int, end: int, known_tokens: int) -> float:
        """The extra cost of a chunk whose prompt continues after ``end``, to ``known_tokens``."""
        if self.blocks is None or end >= known_tokens:
            return 0.0
        attended = self.blocks.attended(end, known_tokens)
        laying_s = self.laying_s if start == 0 and attended > end else 0.0
        return laying_s + self.square_s * (attended * attended - end * end)

    def step_s(self, steps: Steps) -> Floats:
        """Seconds of each whole step; NaN if it is out of range."""
        return np.array([self._step_s(steps, row) for row in range(len(steps))])

    def _step_s(self, steps: Steps, row: int) -> float:
        prefill, chunks = int(steps.prefill_tokens[row]), int(steps.prefill_sequences[row])
        n, context = int(steps.decode_sequences[row]), int(steps.context_tokens[row])
        limits = self.limits
        if prefill > limits.max_prefill_tokens or steps.prompt_ends[row] > limits.prompt_tokens:
            return float("nan")
        if n > limits.max_decode_sequences or context > limits.max_context_tokens:
            return float("nan")
        squares = steps.squares if self.blocks is None else steps.whole_squares
        seconds = self.dense_s(prefill, chunks, n) + self.square_s * float(squares[row])
        seconds += self.laying_s * chunks if steps.cached_tokens[row] else 0.0
        return seconds + (self._decode_s(n, context) - self._decode_s(n, 0.0) if n else 0.0)

    def _dense_s(self, tokens: float) -> float:
        """D; beyond the last measured number of tokens its last stretch continues."""
        known, seconds = self.tokens, self.dense
        if len(known) == 1 or tokens <= known[0]:
            return seconds[0]
        at = min(bisect_right(known, tokens), len(known) - 1) - 1
        slope_s = (seconds[at + 1] - seconds[at]) / (known[at + 1] - known[at])
        return seconds[at] + slope_s * (tokens - known[at])

    def _around(self, n: int) -> tuple[int, ...]:
        """The line, or the two lines, at or around ``n`` sequences."""
        at = bisect_left(self.sequences, n)
        if at == len(self.sequences):
            return (at - 1,)
        return (at,) if at == 0 or self.sequences[at] == n else (at - 1, at)

    def _decode_s(self, n: int, context: float) -> float:
        """A step of ``n`` sequences with ``context`` tokens in total."""
        places = self._around(n)
        times = [self.lines[at].at(context * self.sequences[at] / n) for at in places]
        if len(times) == 1:
            return self.lines[places[0]].at(context)
        low, high = (self.sequences[at] for at in places)
        return times[0] + (n - low) / (high - low) * (times[1] - times[0])


def fitted_whole_steps(
    steps: Steps, apart: bool = False, blocks: PromptBlocks | None = None
) -> tuple[WholeStepModel, tuple[str, ...]]:
    """The model of measured steps, without texts, and notes on its assumptions.

    ``apart``, ``blocks``: as in a `StepProfile`.
    """
    decode, prefill = steps.where(steps.phase("decode")), steps.where(steps.phase("prefill"))
    if not len(decode) or not len(prefill):
        raise HardwareError("a whole-step model needs steps with prompts alone and with decodes alone")
    sequences, lines = _decode_lines(decode)
    prefill = _one_chunk_each(prefill) if apart else prefill
    squares = prefill.squares if blocks is None else prefill.whole_squares
    square_s, notes = _square_s(prefill, squares)
    laying_s = 0.0
    if blocks is not None:
        laying_s, square_s = _laid_out(prefill, square_s)
    attention_s = square_s * squares + laying_s * prefill.prefill_sequences * (prefill.cached_tokens > 0)
    tokens, dense = _dense_line(prefill, attention_s, () if apart else sequences, lines)
    limits = StepLimits(
        int(steps.decode_sequences.max()),
        int(steps.context_tokens.max()),
        int(steps.prefill_tokens.max()),
        int(steps.prompt_ends.max()),
    )
    model = WholeStepModel(
        sequences=sequences,
        lines=lines,
        tokens=tokens,
        dense=dense,
        square_s=square_s,
        limits=limits,
        source="",
        error_band="",
        includes_overhead=True,
        apart=apart,
        blocks=blocks,
        laying_s=laying_s,
    )
    mixed = steps.where(steps.phase("mixed"))
    if len(mixed) and not apart:
        model = replace(model, saved_s=float(np.median(_sums_s(model, mixed) - mixed.seconds)))
    return model, notes


def _sums_s(model: WholeStepModel, mixed: Steps) -> Floats:
    """Seconds of the prompts of each step and of its decodes, each in a step of its own."""
    nobody, nothing = np.zeros_like(mixed.decode_sequences), np.zeros_like(mixed.prefill_tokens)
    prompts = replace(mixed, decode_sequences=nobody, context_tokens=nobody)
    decodes = replace(mixed, prefill_tokens=nothing, prefill_sequences=nothing, cached_tokens=nothing)
    return model.step_s(prompts) + model.step_s(decodes)


def _one_chunk_each(prefill: Steps) -> Steps:
    """Divide passes that run one after the other: each chunk takes its part."""
    chunks = prefill.prefill_sequences
    return replace(
        prefill,
        prefill_tokens=prefill.prefill_tokens // chunks,
        prefill_sequences=np.ones_like(chunks),
        seconds=prefill.seconds / chunks,
    )


def _decode_lines(decode: Steps) -> tuple[tuple[int, ...], tuple[DecodeLine, ...]]:
    common_s = _slope_s(decode.decode_sequences, decode.context_tokens, decode.seconds)
    lines = []
    sequences = tuple(int(n) for n in np.unique(decode.decode_sequences))
    for n in sequences:
        rows = decode.decode_sequences == n
        context, seconds = decode.context_tokens[rows].astype(float), decode.seconds[rows]
        order = np.argsort(context)
        context, seconds = context[order], np.maximum.accumulate(seconds[order])  # falls are noise
        slope_s = common_s
        if len(context) > 1:
            slope_s = float((seconds[-1] - seconds[0]) / (context[-1] - context[0]))
        lines.append(DecodeLine(tuple(context.tolist()), tuple(seconds.tolist()), slope_s))
    return sequences, tuple(lines)


def _square_s(prefill: Steps, squares: Floats) -> tuple[float, tuple[str, ...]]:
    """Seconds per squared token: from chunks with equal tokens and other squares, else from the curve."""
    seconds, notes = prefill.seconds, tuple[str, ...]()
    groups = np.unique(prefill.prefill_tokens, return_inverse=True)[1].reshape(-1)
    if not (prefill.cached_tokens > 0).any():
        notes = ("chunks after cached tokens were not measured: their time follows from the squared term",)
    if any(len(np.unique(squares[groups == group])) > 1 for group in np.unique(groups)):
        square_s = _slope_s(prefill.prefill_tokens, squares, seconds)
    else:
        design = np.stack([np.ones(len(seconds)), prefill.prefill_tokens.astype(float), squares], axis=1)
        square_s = float(non_negative(design / seconds[:, None], np.ones(len(seconds)))[2])
    return min(square_s, float((_MOST_ATTENTION * seconds / squares).min())), notes


def _laid_out(prefill: Steps, square_s: float) -> tuple[float, float]:
    """(seconds to lay a chunk out, seconds per square): of chunks and whole prompts of as many tokens.

    With fewer than two kinds of such chunks the slope stays as it is, and laying takes no time.
    """
    rows = (prefill.cached_tokens == 0) & (prefill.prefill_sequences == 1)
    whole_s = dict(zip(prefill.prefill_tokens[rows].tolist(), prefill.seconds[rows].tolist()))
    more, squares, sizes = list[float](), list[float](), list[float]()
    for row in np.flatnonzero(prefill.cached_tokens > 0):
        tokens, end = int(prefill.prefill_tokens[row]), int(prefill.prompt_ends[row])
        if tokens in whole_s and prefill.prefill_sequences[row] == 1:
            sizes.append(float(prefill.seconds[row]))
            more.append(sizes[-1] - whole_s[tokens])
            squares.append(float(end * end - tokens * tokens))
    if len(set(squares)) < 2:
        return 0.0, square_s
    weights = 1.0 / np.array(sizes)
    design = np.stack([np.ones(len(more)), np.array(squares)], axis=1)
    laying_s, each_s = non_negative(design * weights[:, None], np.array(more) * weights)
    return float(laying_s), float(each_s)


def _slope_s(groups: Ints, work: Ints | Floats, seconds: Floats) -> float:
    """One slope over ``work`` within all groups, by relative error; 0 if no group has two points."""
    above = below = 0.0
    for group in np.unique(groups):
        rows = groups == group
        mean_s = seconds[rows].mean()
        x = (work[rows] - work[rows].mean()) / mean_s
        above += float((x * (seconds[rows] / mean_s - 1.0)).sum())
        below += float((x * x).sum())
    return max(0.0, above / below) if below else 0.0


def _dense_line(
    prefill: Steps, attention_s: Floats, sequences: Sequence[int], lines: Sequence[DecodeLine]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Time of prompts without their squares; below the shortest prompt, of decodes without context."""
    left = prefill.seconds - attention_s
    tokens = np.unique(prefill.prefill_tokens)
    points = {float(count): float(left[prefill.prefill_tokens == count].mean()) for count in tokens}
    for n, line in zip(sequences, lines):
        if n < tokens[0]:
            points[float(n)] = line.at(0.0)
    known = sorted(points)
    return tuple(known), tuple(points[count] for count in known)
