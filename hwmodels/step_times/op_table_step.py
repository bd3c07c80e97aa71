"""The op-table rung: measured operation times, interpolated once at construction, looked up at run time."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats, OpTables, Profile, Stamp
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
)
from hwmodels.step_times.op_table_attention import FINE, MixedAttention, PrefillPrefixes, PrefillTable
from hwmodels.step_times.step_error import (
    UNJUDGED_TABLES,
    StepErrors,
    all_reduce_errors,
    judged_errors,
    of_percents,
)
from hwmodels.step_times.step_time import Piece, StepLimits

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
        found = judged_errors(self.error_band)
        if found is not None and self.interplay is None:
            found.pop("mixed", None)  # measured on other tables than these
        if found is None:
            errors = of_percents(
                dict(UNJUDGED_TABLES), "assumed", "not judged: taken as the worst of six judged tables"
            )
        else:
            errors = of_percents(found, "held out", "op tables on lines they had not seen")
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
