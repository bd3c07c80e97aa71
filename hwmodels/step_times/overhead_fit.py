"""Fits what an engine adds to the operations of a step: measured steps minus the operations' sum."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats
from hwmodels.profiles.step_profile import PHASES, Mask, Phase, StepProfile, Steps
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.fit import non_negative
from hwmodels.step_times.step_time import StepModel, pieces_s
from hwmodels.step_times.whole_step_error import folds

# With fewer steps in the operations' range no fit is made.
FEWEST = 6


@dataclass(frozen=True, slots=True)
class Regime:
    """Steps of one phase: mean seconds beyond the operations' sum, and the error of sum + overhead.

    ``held_out_percent``: (mean, p95) of the whole step, on rows that the fitted overhead had not seen.
    """

    phase: str
    rows: int
    beyond_s: float
    beyond_share: float
    held_out_percent: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadFit:
    """``rows``: those it was fitted to; ``refused``: beyond the operations' range.

    ``error_s``: p95 of the overhead's error for such a step, on grid lines it had not seen.
    """

    step_s: float
    per_sequence_s: float
    error_s: float
    rows: int
    refused: int
    regimes: tuple[Regime, ...]


def fit_overhead(
    profile: StepProfile, operations: StepModel, graph_batches: tuple[int, ...] = ()
) -> OverheadFit:
    """Seconds per step and per sequence on top of ``operations``, which run with those captured batches.

    HardwareError if the profile is a sum of operations itself, or has too few steps within the model's range.
    """
    if not profile.includes_overhead:
        raise HardwareError(
            "this profile holds sums of operations without engine overhead: name a profile of whole steps"
        )
    bare = EngineStepModel(operations, EngineOverhead(graph_batches=graph_batches))
    sums = np.array([_operations_s(bare, profile.steps, row) for row in range(len(profile.steps))])
    known = ~np.isnan(sums)
    if int(known.sum()) < FEWEST:
        raise HardwareError(
            f"the operations cover {int(known.sum())} of the {len(sums)} measured steps, and fitting an "
            f"overhead needs at least {FEWEST}: name a model of operations with a wider range"
        )
    steps, sums = profile.steps.where(known), sums[known]
    basis = _basis(steps)
    step_s, per_sequence_s = _fitted(steps.where(basis), sums[basis])
    unseen = _unseen(steps, sums, basis)
    error_s = float(np.percentile(np.abs(unseen[basis]), 95))
    regimes = tuple(_regime(phase, steps, sums, unseen) for phase in PHASES if steps.phase(phase).any())
    return OverheadFit(
        step_s=step_s,
        per_sequence_s=per_sequence_s,
        error_s=error_s,
        rows=int(basis.sum()),
        refused=int((~known).sum()),
        regimes=regimes,
    )


def _basis(steps: Steps) -> Mask:
    """The rows to fit: decodes alone, where an engine's share is largest; all rows if there are none.

    What a prompt takes beyond the sum grows with its tokens, so it is the operations' error, not overhead.
    """
    decode = steps.phase("decode")
    return decode if int(decode.sum()) >= FEWEST else np.ones(len(steps), dtype=np.bool_)


def _fitted(steps: Steps, sums: Floats) -> tuple[float, float]:
    """Non-negative coefficients, by relative error of the whole step."""
    ones, sequences = np.ones(len(steps)), _sequences(steps)
    design = np.stack([ones, sequences], axis=1) / steps.seconds[:, None]
    beyond = (steps.seconds - sums) / steps.seconds
    step_s, per_sequence_s = non_negative(design, beyond)
    return float(step_s), float(per_sequence_s)


def _sequences(steps: Steps) -> Floats:
    return (steps.decode_sequences + steps.prefill_sequences).astype(np.float64)


def _unseen(steps: Steps, sums: Floats, basis: Mask) -> Floats:
    """The remainder of each row with an overhead fitted without its grid line, the largest of several.

    A row on no grid line gets the remainder of the fit to all rows.
    """
    left = _left(steps, sums, basis)
    for out in folds(steps, "decode"):
        columns = basis & ~out
        if int(columns.sum()) >= 2:
            off = _left(steps, sums, columns)
            left = np.where(out & (np.abs(off) > np.abs(left)), off, left)
    return left


def _left(steps: Steps, sums: Floats, columns: Mask) -> Floats:
    """Measured minus sum and the overhead fitted to ``kept``, for every row."""
    step_s, per_sequence_s = _fitted(steps.where(columns), sums[columns])
    left: Floats = steps.seconds - sums - step_s - per_sequence_s * _sequences(steps)
    return left


def _regime(phase: Phase, steps: Steps, sums: Floats, unseen: Floats) -> Regime:
    rows = steps.phase(phase)
    seconds, beyond = steps.seconds[rows], (steps.seconds - sums)[rows]
    off = np.abs(unseen[rows] / seconds) * 100.0
    percent = float(off.mean()), float(np.percentile(off, 95))
    return Regime(phase, int(rows.sum()), float(beyond.mean()), float((beyond / seconds).mean()), percent)


def _operations_s(model: StepModel, steps: Steps, row: int) -> float:
    """The operations' sum for one measured step; NaN beyond the model's range."""
    prefill, chunks = int(steps.prefill_tokens[row]), int(steps.prefill_sequences[row])
    n, context = int(steps.decode_sequences[row]), int(steps.context_tokens[row])
    limits, cached = model.limits, int(steps.cached_tokens[row])
    beyond = prefill > limits.max_prefill_tokens or n > limits.max_decode_sequences
    if beyond or int(steps.prompt_ends[row]) > limits.prompt_tokens:
        return float("nan")
    new = prefill // chunks if chunks else 0
    try:
        return _sum_s(model, prefill=prefill, chunks=chunks, new=new, cached=cached, n=n, context=context)
    except HardwareError:
        return float("nan")


def _sum_s(
    model: StepModel, *, prefill: int, chunks: int, new: int, cached: int, n: int, context: int
) -> float:
    seconds = model.dense_s(prefill, chunks, n)
    attention: Callable[[int, int], float] = model.prefill_attention_s
    if chunks:
        launch_s = max(0.0, 2.0 * attention(1, 0) - attention(2, 0))  # paid once, as in rows.py
        seconds += chunks * attention(new, cached) - (chunks - 1) * launch_s
    if not n:
        return seconds
    if prefill and model.interplay is not None:
        return seconds + model.interplay.mixed_decode_attention_s(n, context, new, cached)
    decode_s = pieces_s(model.decode_attention(n), context)
    return float("nan") if decode_s is None else seconds + decode_s
