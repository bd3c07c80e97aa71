"""The op-table rung: measured operation times, interpolated once at construction, looked up at run time."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats, Lattice, OpTables, Profile, Stamp
from hwmodels.step_times.op_table import (
    Surface,
    decode_form,
    dense_by_tokens,
    fitted,
    mixed_form,
    prefill_form,
    refined,
    rising,
    seconds_by_count,
    segments,
)
from hwmodels.step_times.step_error import (
    UNJUDGED_TABLES,
    StepErrors,
    all_reduce_errors,
    judged_errors,
    of_percents,
)
from hwmodels.step_times.step_time import Piece, StepLimits

# Attention of prompt chunks, alone and together with decoding sequences, in tables for fast look-up.

# Linear interpolation between neighbours of this ratio misses the curve by at most 0.1 % if one lattice was
# measured (RTX 4090, prefill over cached tokens), by 0.1 % on average if two were (RTX PRO 6000).
FINE: Final = 1.2
# The same by 0.4 % and 0.4 %: for three axes at once, for which a finer table would be too large.
COARSE: Final = 1.5


class PrefillTable:
    """Attention of a chunk over every number of new tokens and refined lines of cached tokens."""

    __slots__ = ("_inverse", "_last_new", "_lines", "_seconds", "_segments", "prompt_tokens")

    def __init__(self, surface: Surface, most_tokens: int) -> None:
        lines = _refined(surface, 1, FINE)
        self._last_new = min(surface.last_lines[0], most_tokens)
        self.prompt_tokens = lines[-1] + self._last_new
        seconds = rising(surface.on(range(self._last_new + 1), lines), 1)
        self._seconds = [array("d", row.tobytes()) for row in seconds]
        self._segments = segments(lines)
        self._lines = [float(line) for line in lines]
        self._inverse = [1.0 / (high - low) for low, high in pairwise(lines)]

    def seconds(self, new: int, cached: int) -> float:
        """Seconds of ``new`` tokens behind ``cached``."""
        try:
            row = self._seconds[new]
            i = self._segments[cached]
        except IndexError:
            raise _beyond_prefill(new, cached, self._last_new, len(self._segments) - 1) from None
        low = row[i]
        found: float = low + (row[i + 1] - low) * (cached - self._lines[i]) * self._inverse[i]
        if found != found:  # NaN: a hole of the table
            raise _beyond_prefill(new, cached, self._last_new, len(self._segments) - 1)
        return found


class PrefillPrefixes:
    """If only whole prompts were measured, a chunk costs the growth of its prompt's attention.

    At least a launch: the time of a chunk of one token alone.
    """

    __slots__ = ("_seconds", "prompt_tokens")

    def __init__(self, surface: Surface) -> None:
        whole = rising(surface.on(range(surface.last_lines[0] + 1), [0])[:, 0], 0)
        known = int(np.argmin(np.append(~np.isnan(whole), False)))
        self._seconds: list[float] = whole[:known].tolist()
        self.prompt_tokens = known - 1

    def seconds(self, new: int, cached: int) -> float:
        """Seconds of ``new`` tokens behind ``cached``."""
        seconds = self._seconds
        try:
            if not cached:
                return seconds[new]
            return max(seconds[cached + new] - seconds[cached], seconds[1])
        except IndexError:
            raise _beyond_prefill(new, cached, self.prompt_tokens, self.prompt_tokens - new) from None


class MixedAttention:
    """What decoding sequences add to chunks in one kernel, and what unequal contexts add (Interplay).

    One table per number of sequences over refined lines of new tokens, cached tokens and context of each.
    Above ``measured_sequences`` and up to ``reach`` the line through the last two measured numbers is
    extrapolated: decode steps are measured further than mixed ones, and an engine mixes all its sequences.
    """

    __slots__ = (
        "_alphas",
        "_cached",
        "_context",
        "_limits",
        "_new",
        "_skew_line",
        "_stride",
        "_tables",
        "measured_sequences",
        "skewed",
    )

    def __init__(self, mixed: Surface, prefill: Surface, skew: Lattice | None, reach: int) -> None:
        new, cached, context = (_refined(mixed, axis, COARSE) for axis in (0, 1, 3))
        self.measured_sequences = sequences = mixed.last_lines[2]
        together = rising(mixed.on(new, cached, range(1, sequences + 1), context), 3)
        alone = rising(prefill.on(new, cached), 1)
        added = np.moveaxis(together - alone[:, :, None, None], 2, 0)
        if reach > sequences and len(mixed.lines(2)) > 1:
            added = _continued(added, mixed.lines(2)[-2], reach)
            sequences = reach
        self._tables = [array("d"), *(array("d", part.tobytes()) for part in added)]
        self._stride = (len(cached) * len(context), len(context))
        self._new, self._cached, self._context = (_Lines(lines) for lines in (new, cached, context))
        self._limits = (sequences, new[-1], cached[-1], context[-1])
        self._skew_line, self._alphas = _alphas(skew, sequences) if skew is not None else ([0], [[0.0, 0.0]])
        self.skewed = any(alpha > 0.0 for alphas in self._alphas for alpha in alphas)

    def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
        """Measured alpha; beyond the last line of the skew table the last line's value."""
        line = self._skew_line
        alphas = self._alphas[line[prefill_tokens] if prefill_tokens < len(line) else line[-1]]
        return alphas[decode_sequences] if decode_sequences < len(alphas) else alphas[-1]

    def mixed_decode_attention_s(
        self, decode_sequences: int, context_tokens: float, new_tokens: int, cached_tokens: int
    ) -> float:
        """Time together minus the chunk alone, so it may be slightly below 0 for very short contexts."""
        news, caches, contexts = self._new, self._cached, self._context
        each = context_tokens / decode_sequences
        try:
            table = self._tables[decode_sequences]
            i = news.segment[new_tokens]
            j = caches.segment[cached_tokens]
            k = contexts.segment[-int(-context_tokens // decode_sequences)]
        except IndexError:
            raise self._outside(decode_sequences, context_tokens, new_tokens, cached_tokens) from None
        over_new, width = self._stride
        at = i * over_new + j * width + k
        # Below the first line its values are used: the fractions are cut at 0 there.
        share = (each - contexts.low[k]) * contexts.inverse[k] if each > contexts.first else 0.0
        seconds = table[at] + (table[at + 1] - table[at]) * share
        next_at = at + width
        two = table[next_at] + (table[next_at + 1] - table[next_at]) * share
        at += over_new
        three = table[at] + (table[at + 1] - table[at]) * share
        next_at = at + width
        four = table[next_at] + (table[next_at + 1] - table[next_at]) * share
        share = caches.share[cached_tokens]
        seconds += (two - seconds) * share
        three += (four - three) * share
        found: float = seconds + (three - seconds) * news.share[new_tokens]
        if found != found:  # NaN: a hole of the table
            raise self._outside(decode_sequences, context_tokens, new_tokens, cached_tokens)
        return found

    def _outside(self, n: int, context: float, new: int, cached: int) -> HardwareError:
        sequences, last_new, last_cached, last_context = self._limits
        return HardwareError(
            f"{n} sequences with {context:.0f} tokens of context, beside {new} prompt tokens behind "
            f"{cached}, are outside the measured mixed steps (1 to {sequences} sequences of up to "
            f"{last_context} tokens each, {last_new} new and {last_cached} cached tokens); lower the "
            "engine's max_num_seqs or max_num_batched_tokens, or choose a batcher that does not mix"
        )


def _continued(added: Floats, line_before: int, reach: int) -> Floats:
    """``added`` over 1, 2, ... sequences, extrapolated to ``reach`` along its line from ``line_before``."""
    last = len(added)
    slope = (added[last - 1] - added[line_before - 1]) / (last - line_before)
    beyond = np.arange(1, reach - last + 1, dtype=np.float64)
    return np.concatenate([added, added[last - 1] + beyond[:, None, None, None] * slope])


class _Lines:
    """A refined axis with the segment of every value, and its fraction of the way through it."""

    __slots__ = ("first", "inverse", "low", "segment", "share")

    def __init__(self, lines: Sequence[int]) -> None:
        self.first = lines[0]
        self.segment = segments(lines)
        self.low = [float(line) for line in lines[:-1]]
        self.inverse = [1.0 / (high - low) for low, high in pairwise(lines)]
        self.share = [
            max(0.0, (value - self.low[i]) * self.inverse[i]) for value, i in enumerate(self.segment)
        ]


def _refined(surface: Surface, axis: int, ratio: float) -> list[int]:
    lines = surface.lines(axis)
    if len(lines) < 2:
        raise HardwareError(
            f"attention beside cached tokens was measured at {lines[0]} only on one axis; import "
            "a table with at least two values on each axis"
        )
    return refined(lines, ratio)


def _alphas(skew: Lattice, sequences: int) -> tuple[list[int], list[list[float]]]:
    """The skew line of each number of prompt tokens (nearest by ratio), and alpha per line and sequences."""
    tokens, counts = skew.axes
    known = [line for line in range(len(tokens)) if not np.isnan(skew.values[line]).all()]
    if not known:
        return [0], [[0.0, 0.0]]
    every = np.log(np.arange(1, max(sequences, counts[-1]) + 1))
    alphas = []
    for line in known:
        row = skew.values[line]
        measured = ~np.isnan(row)
        alpha = np.clip(np.interp(every, np.log(counts)[measured], row[measured]), 0.0, 1.0)
        alpha[0] = 0.0  # a single sequence equals the mean
        alphas.append([0.0, *alpha.tolist()])
    # Line 0 is used for steps without prompt tokens, and only for them.
    place = np.log([max(tokens[line], 1e-9) for line in known])
    wanted = np.log(np.maximum(np.arange(tokens[-1] + 1), 1e-9))
    return np.abs(wanted[:, None] - place).argmin(axis=1).tolist(), alphas


def _beyond_prefill(new: int, cached: int, last_new: int, last_cached: int) -> HardwareError:
    return HardwareError(
        f"a chunk of {new} prompt tokens behind {cached} is outside the measured prefill attention (up to "
        f"{last_new} new and {last_cached} cached tokens); lower the engine's "
        "max_num_batched_tokens"
    )


NOT_JUDGED: Final = (
    "interpolated between measured operations, the error was not judged; sums of operations lack "
    "the engine's overhead, which is declared separately"
)
# A linear piece may differ from a decode step's curve by at most this share.
PIECE_TOLERANCE: Final = 0.003


class OpTableStepModel:
    """A profile as a step-time model; ``error_band`` states its error (hwmodels.step_times.held_out)."""

    __slots__ = (
        "_decode",
        "_decode_lines",
        "_dense",
        "_head",
        "_prefill",
        "error_band",
        "errors",
        "interplay",
        "labels",
        "limits",
        "prefill_attention_s",
        "source",
    )

    def __init__(self, profile: Profile, error_band: str = NOT_JUDGED) -> None:
        tables = profile.tables
        self._dense: list[float] = dense_by_tokens(tables).tolist()
        self._head: list[float] = seconds_by_count(tables.head).tolist()
        decode = fitted(decode_form, tables.decode, "decode attention")
        prefill = fitted(prefill_form, tables.prefill, "prefill attention")
        sequences = min(decode.last_lines[0], len(self._head) - 1, len(self._dense) - 1)
        self._decode_lines = refined(decode.lines(1), FINE)
        counts = range(1, sequences + 1)
        measured = rising(decode.on(counts, self._decode_lines), 1)
        edges = _edges(measured, self._decode_lines)
        self._decode: Floats = _beyond(measured, decode.formed(counts, self._decode_lines))
        self._prefill: PrefillTable | PrefillPrefixes = (
            PrefillTable(prefill, len(self._dense) - 1)
            if prefill.last_lines[1] > 0
            else PrefillPrefixes(prefill)
        )
        # Attention of one chunk alone in its step.
        self.prefill_attention_s = self._prefill.seconds
        self.interplay: MixedAttention | None = _interplay(tables, prefill, sequences)
        self.limits = StepLimits(
            max_decode_sequences=sequences,
            max_context_tokens=self._decode_lines[-1] * sequences,
            max_prefill_tokens=len(self._dense) - 1,
            max_prompt_tokens=self._prefill.prompt_tokens,
        )
        self.source = _source(profile.stamp)
        if self.interplay is not None and self.interplay.measured_sequences < sequences:
            self.source += (
                f"; beside prompts more than {self.interplay.measured_sequences} decoding sequences were not "
                "measured: the line through the last two numbers goes on"
            )
        if edges[-1] < self.limits.max_context_tokens:
            self.source += (
                f"; decode attention was measured up to {max(edges)} tokens of context in all, {edges[-1]} "
                f"of {sequences} sequences: beyond the edge the fitted form is extrapolated"
            )
        self.error_band = error_band
        self.labels: tuple[str, ...] = profile.stamp.labels
        self.errors: StepErrors = self._judged(profile)

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """Dense layers over all tokens of the step, and the head over its sequences."""
        try:
            return (
                self._dense[prefill_tokens + decode_sequences]
                + self._head[prefill_sequences + decode_sequences]
            )
        except IndexError:
            raise HardwareError(
                f"a step of {prefill_tokens + decode_sequences} tokens in "
                f"{prefill_sequences + decode_sequences} sequences is beyond the {len(self._dense) - 1} "
                f"tokens and {len(self._head) - 1} sequences measured; lower the engine's "
                "max_num_batched_tokens or max_num_seqs"
            ) from None

    def _judged(self, profile: Profile) -> StepErrors:
        """The errors on held-out lines, plus those of labelled all-reduces."""
        judged = judged_errors(self.error_band)
        if judged is not None and self.interplay is None:
            judged.pop("mixed", None)  # measured on other tables than these
        if judged is None:
            errors = of_percents(
                dict(UNJUDGED_TABLES), "assumed", "not judged: taken as the worst of six judged tables"
            )
        else:
            errors = of_percents(judged, "held out", "op tables on lines they had not seen")
        curve = profile.tables.all_reduce
        if curve is None:
            return errors
        return errors.beside(
            all_reduce_errors(
                self.labels,
                lambda tokens: float(np.interp(tokens, curve.counts, curve.seconds)),
                self._dense.__getitem__,
                (self.limits.max_prefill_tokens, self.limits.max_decode_sequences),
            )
        )

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """Few linear pieces, within PIECE_TOLERANCE of the step; constant up to the first measured context.

        If a table ends before its longest context, because memory did when it was measured, the fitted form
        continues from there.
        """
        n = decode_sequences
        if not 1 <= n <= len(self._decode):
            raise HardwareError(
                f"{n} decoding sequences are outside the measured 1 to {len(self._decode)}; lower the "
                "engine's max_num_seqs"
            )
        last = len(self._decode_lines)
        context = [0, *(line * n for line in self._decode_lines[:last])]
        curve: list[float] = self._decode[n - 1, :last].tolist()
        seconds = [curve[0], *curve]
        dense_s = self.dense_s(0, 0, n)
        tolerance = [PIECE_TOLERANCE * (dense_s + attention_s) for attention_s in seconds]
        pieces = []
        start = 0
        while start < last:
            end = _straight_until(context, seconds, tolerance, start)
            slope = (seconds[end] - seconds[start]) / (context[end] - context[start])
            pieces.append(Piece(context[end], seconds[start] - slope * context[start], slope))
            start = end
        return tuple(pieces)


def _edges(measured: Floats, lines: Sequence[int]) -> list[int]:
    """The total context up to which each number of sequences was measured without a gap."""
    edges = []
    for n, row in enumerate(measured, start=1):
        known = int(np.argmin(np.append(~np.isnan(row), False)))
        if not known:
            raise HardwareError(
                f"the profile has no decode attention at {n} sequences of {lines[0]} tokens; "
                "import a table whose shortest context is measured for every number of sequences"
            )
        edges.append(lines[known - 1] * n)
    return edges


def _beyond(measured: Floats, formed: Floats) -> Floats:
    """``measured``, continued after the last point of each row by the form, scaled to match there."""
    whole = measured.copy()
    for row, form in zip(whole, formed, strict=True):
        known = int(np.argmin(np.append(~np.isnan(row), False)))
        row[known:] = form[known:] * (row[known - 1] / form[known - 1])
    return whole


def _interplay(tables: OpTables, prefill: Surface, sequences: int) -> MixedAttention | None:
    if not tables.mixed:
        return None
    mixed = fitted(mixed_form, tables.mixed, "mixed attention")
    return MixedAttention(mixed, prefill, tables.skew, sequences)


def _straight_until(
    context: Sequence[int], seconds: Sequence[float], tolerance: Sequence[float], start: int
) -> int:
    """The furthest knot that a straight line from ``start`` reaches within ``tolerance`` of all between."""
    best = start + 1
    lowest, highest = 0.0, float("inf")
    for knot in range(start + 1, len(context)):
        run = context[knot] - context[start]
        rise = seconds[knot] - seconds[start]
        if lowest <= rise / run <= highest:
            best = knot
        lowest = max(lowest, (rise - tolerance[knot]) / run)
        highest = min(highest, (rise + tolerance[knot]) / run)
        if lowest > highest:
            break
    return best


def _source(stamp: Stamp) -> str:
    place = f"{stamp.llm} on {stamp.gpu} tp={stamp.tp}"
    notes = "".join(f"; {note}" for note in stamp.notes)
    return (
        f"op tables: {place}, {stamp.precision}, {stamp.engine} {stamp.engine_version}, {stamp.source}{notes}"
    )
