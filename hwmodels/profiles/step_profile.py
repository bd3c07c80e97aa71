"""A whole-step profile: measured iterations of a serving engine, and their setting.

One row is one step: prompt chunks, decoding sequences, or both. docs/how-to/PROFILES.md has the format.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from hwmodels.profiles.profile import Floats, Stamp

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Phase = Literal["prefill", "decode", "mixed"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """A chunk attends over its whole prompt, cut at the next multiple of ``block``, at least ``fewest``.

    Its tokens are computed in multiples of ``rows``.
    """

    block: int
    fewest: int
    rows: int = 1

    def attended(self, end: int, known_tokens: int) -> int:
        """Positions that a chunk up to ``end`` costs, in a prompt with ``known_tokens``."""
        return min(known_tokens, max(-(-end // self.block) * self.block, self.fewest))

    def computed(self, tokens: int, chunks: int) -> float:
        """Computed tokens per chunk with padding; for several chunks the mean of the likely sizes."""
        if chunks == 1:
            return float(-(-tokens // self.rows) * self.rows)
        return tokens / chunks + (self.rows - 1) / 2 if tokens % (self.rows * chunks) else tokens / chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Columns of equal length, no step twice.

    ``prefill_tokens``: new prompt tokens in ``prefill_sequences`` chunks of one length, each after
    ``cached_tokens`` stored before. ``context_tokens``: total of the ``decode_sequences``, including the
    tokens being fed. ``seconds``: mean of ``repeats``.
    """

    prefill_tokens: Ints
    prefill_sequences: Ints
    cached_tokens: Ints
    decode_sequences: Ints
    context_tokens: Ints
    repeats: Ints
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, rows: Mask | npt.NDArray[np.intp]) -> "Steps":
        """The rows that ``rows`` marks or numbers."""
        return Steps(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def phase(self, phase: Phase) -> Mask:
        """Which rows have prompts alone, decodes alone, or both."""
        prefill, decode = self.prefill_tokens > 0, self.decode_sequences > 0
        return {"prefill": prefill & ~decode, "decode": decode & ~prefill, "mixed": prefill & decode}[phase]

    @property
    def squares(self) -> Floats:
        """Twice the (query, key) pairs of all chunks: new * (new + 2 * cached) of each."""
        chunks = np.maximum(self.prefill_sequences, 1)
        tokens = self.prefill_tokens.astype(np.float64)
        return np.asarray(tokens * (tokens / chunks + 2.0 * self.cached_tokens))

    @property
    def whole_squares(self) -> Floats:
        """The same for chunks that are laid out in prompts which end where they do."""
        ends = np.maximum(self.prefill_tokens, 1) / np.maximum(self.prefill_sequences, 1) + self.cached_tokens
        return np.asarray(self.prefill_sequences * ends * ends)

    @property
    def prompt_ends(self) -> Ints:
        """The position in its prompt at which each chunk ends."""
        return -(-self.prefill_tokens // np.maximum(self.prefill_sequences, 1)) + self.cached_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """Measured steps with their stamp.

    ``includes_overhead``: they contain the engine's own time (whole steps); else they are sums of operations.
    ``apart``: the engine runs each chunk of a step, and its decodes, as separate passes. ``blocks``: for an
    engine that lays each chunk out in its whole prompt; None: a chunk costs its own part. ``repeat_spread``:
    p95 of the deviation of repeats of one step from their mean, as a share; None: no repeats.
    """

    stamp: Stamp
    steps: Steps
    includes_overhead: bool
    repeat_spread: float | None = None
    apart: bool = False
    blocks: PromptBlocks | None = None


@dataclass(frozen=True, slots=True)
class LoadedSteps:
    """A profile from a folder: ``digest`` is that of its table, ``problems`` those accepted by force."""

    profile: StepProfile
    digest: str
    problems: tuple[str, ...] = ()


def distinct(columns: Sequence[Ints], repeats: Ints, seconds: Floats) -> tuple[Steps, float | None]:
    """Merge rows of the same step, weighted by their repeats; returns also the spread between them."""
    keys, row = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    row = row.reshape(-1)
    weight = np.bincount(row, weights=repeats)
    mean = np.bincount(row, weights=repeats * seconds) / weight
    again = np.bincount(row)[row] > 1
    spread = np.abs(seconds / mean[row] - 1.0)[again]
    prefill, chunks, cached, decode, context = (np.ascontiguousarray(column) for column in keys.T)
    steps = Steps(
        prefill_tokens=prefill,
        prefill_sequences=chunks,
        cached_tokens=cached,
        decode_sequences=decode,
        context_tokens=context,
        repeats=weight.astype(np.int64),
        seconds=mean,
    )
    return steps, float(np.percentile(spread, 95)) if len(spread) else None
