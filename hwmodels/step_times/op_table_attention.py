"""Attention of prompt chunks, alone and together with decoding sequences, in tables for fast look-up."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats, Lattice
from hwmodels.step_times.op_table import Surface, refined, rising, segments

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
        self._tables = [array("d"), *(array("d", one.tobytes()) for one in added)]
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
        one = table[at] + (table[at + 1] - table[at]) * share
        next_at = at + width
        two = table[next_at] + (table[next_at + 1] - table[next_at]) * share
        at += over_new
        three = table[at] + (table[at + 1] - table[at]) * share
        next_at = at + width
        four = table[next_at] + (table[next_at + 1] - table[next_at]) * share
        share = caches.share[cached_tokens]
        one += (two - one) * share
        three += (four - three) * share
        found: float = one + (three - one) * news.share[new_tokens]
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
