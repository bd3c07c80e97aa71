"""Error of the whole-step rung on grid lines it has not seen, and the model including that error."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from hwmodels.profiles.profile import Floats
from hwmodels.profiles.step_profile import Ints, Mask, Phase, PromptBlocks, StepProfile, Steps
from hwmodels.step_times.held_out import PhaseError
from hwmodels.step_times.step_error import UNJUDGED_LINES, StepErrors, of_percents
from hwmodels.step_times.whole_step import WholeStepModel, fitted_whole_steps

FOLDS: Final = 5
MOST_OF_A_PHASE: Final = 1 / 3
_OPERATIONS_LABEL: Final = "sums of operations, not measured steps"
_NOT_JUDGED: Final = "the profile has too few lines to judge it, taken as the worst of six tables"


def whole_step_model(profile: StepProfile) -> WholeStepModel:
    """The step-time model of a whole-step profile, with its source and its error."""
    model, notes = fitted_whole_steps(profile.steps, profile.apart, profile.blocks)
    judged = held_out_whole_steps(profile.steps, profile.apart, profile.blocks)
    stamp, limits = profile.stamp, model.limits
    kind = "whole steps" if profile.includes_overhead else _OPERATIONS_LABEL
    source = (
        f"whole steps: {len(profile.steps)} {kind} of {stamp.llm} on {stamp.gpu} tp={stamp.tp}, "
        f"{stamp.engine} {stamp.engine_version}, {stamp.source}, {stamp.licence}; answers up to "
        f"{limits.max_decode_sequences} sequences, {limits.max_context_tokens} total context, "
        f"{limits.max_prefill_tokens} prefill tokens, {limits.prompt_tokens} tokens per prompt"
    )
    noted = (*stamp.notes, *notes)
    return replace(
        model,
        source="; ".join((source, *noted)),
        error_band=error_text(judged),
        errors=_errors(judged),
        includes_overhead=profile.includes_overhead,
        labels=(
            *(() if profile.includes_overhead else (f"step times are {_OPERATIONS_LABEL}",)),
            *(f"the profile is noisy: {note}" for note in stamp.noise),
        ),
    )


def error_text(judged: tuple[PhaseError, ...]) -> str:
    """One line: mean and p95 by phase."""
    if not judged:
        return "not judged: too few grid lines"
    phases = ", ".join(
        f"{phase.phase} {phase.mean_percent:.1f} / {phase.p95_percent:.1f} %" for phase in judged
    )
    return f"{phases} (mean / p95 on grid lines kept from the model)"


def held_out_whole_steps(
    steps: Steps, apart: bool = False, blocks: PromptBlocks | None = None
) -> tuple[PhaseError, ...]:
    """Errors on inner grid lines and of mixed steps, each left out of a fit once."""
    phases: tuple[Phase, ...] = ("decode", "prefill", *(("mixed",) if steps.phase("mixed").any() else ()))
    errors = [_phase_error(phase, *_unseen(steps, phase, apart, blocks)) for phase in phases]
    return tuple(error for error in errors if error is not None)


def _unseen(steps: Steps, phase: Phase, apart: bool, blocks: PromptBlocks | None) -> tuple[Floats, Floats]:
    """(measured, predicted) of each row on an inner line; NaN if the smaller model does not answer."""
    measured, told = [np.empty(0)], [np.empty(0)]
    for out in folds(steps, phase):
        model, _ = fitted_whole_steps(steps.where(~out), apart, blocks)
        left = steps.where(out)
        measured.append(left.seconds)
        told.append(model.step_s(left))
    return np.concatenate(measured), np.concatenate(told)


def folds(steps: Steps, phase: Phase) -> Iterator[Mask]:
    """Which rows are left out: of each axis every FOLDS-th inner line at once; the ends always stay.

    A line with over MOST_OF_A_PHASE of the rows stays as well: without it the other axis could not be fitted.
    Of mixed steps every FOLDS-th: one number is fitted to all of them.
    """
    mine = steps.phase(phase)
    if phase == "mixed":
        at = np.flatnonzero(mine)
        for fold in range(min(FOLDS, len(at))):
            yield np.isin(np.arange(len(steps)), at[fold::FOLDS])
        return
    each = steps.context_tokens // np.maximum(steps.decode_sequences, 1)
    axes: tuple[Ints, ...] = (steps.decode_sequences, each)
    if phase == "prefill":
        axes = steps.prefill_tokens, steps.cached_tokens, steps.prefill_sequences
    for axis in axes:
        values, rows = np.unique(axis[mine], return_counts=True)
        inner = values[1:-1][rows[1:-1] <= MOST_OF_A_PHASE * rows.sum()]
        for fold in range(min(FOLDS, len(inner))):
            out: Mask = mine & np.isin(axis, inner[fold::FOLDS])
            if (mine & ~out).any():
                yield out


def _phase_error(phase: Phase, measured: Floats, predicted: Floats) -> PhaseError | None:
    known = ~np.isnan(predicted)
    if not known.any():
        return None
    errors = (predicted[known] / measured[known] - 1.0) * 100.0
    sizes = np.abs(errors)
    return PhaseError(
        phase=phase,
        rows=len(errors),
        refused=int((~known).sum()),
        mean_percent=float(sizes.mean()),
        p95_percent=float(np.percentile(sizes, 95)),
        bias_percent=float(errors.mean()),
    )


def _errors(judged: tuple[PhaseError, ...]) -> StepErrors:
    """As factors; a phase that could not be evaluated counts as the worst of the evaluated tables."""
    p95 = {phase.phase: phase.p95_percent for phase in judged}
    if missing := [phase for phase in ("prefill", "decode") if phase not in p95]:
        unjudged = dict(UNJUDGED_LINES)
        p95 |= {phase: unjudged[phase] for phase in missing}
        return of_percents(p95, "assumed", _NOT_JUDGED)
    return of_percents(p95, "held out", "whole steps on grid lines kept from the model")
