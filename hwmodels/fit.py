"""Fit the linear rung to a table of iteration times: ``python -m scripts.fit_step_times CSV``.

Non-negative least squares on *relative* error, so that a 10 ms decode step weighs as much as a 1 s prefill.
Three coefficients per phase: intercept, per sequence (decode) or per token (prefill), and per token of total
context (decode) or per squared prompt token (prefill).
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError

PHASES = ("decode", "prefill")
COLUMNS = ("gpu", "model", "tp", "phase", "batch", "tokens", "sum_sq", "total_context", "t_total_ms")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One measured or composed step: ``count`` and ``work`` are the two regressors of its phase."""

    gpu: str
    model: str
    tp: int
    phase: str
    batch: int
    count: int
    work: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ErrorPercent:
    """Absolute relative errors over some rows, in percent."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """Coefficients in seconds, their error on the fitted rows, and with one batch size left out at a time."""

    coefficients: tuple[float, float, float]
    fitted: ErrorPercent
    held_out: ErrorPercent
    rows: int


def read_iterations(path: Path) -> list[Iteration]:
    """Rows of ``path``; seconds from ``t_total_ms``."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise HardwareError(f"{path} lacks column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
            return [_iteration(path, number, row) for number, row in enumerate(reader, start=2)]
    except OSError as error:
        raise HardwareError(
            f"cannot read {path} ({error.strerror}); name a CSV of iteration times"
        ) from error


def _iteration(path: Path, line: int, row: dict[str, str]) -> Iteration:
    phase = row["phase"]
    if phase not in PHASES:
        raise HardwareError(f"{path} line {line}: phase {phase!r} is neither decode nor prefill")
    count, work = ("batch", "total_context") if phase == "decode" else ("tokens", "sum_sq")
    try:
        seconds = float(row["t_total_ms"]) / 1e3
        tp, batch, counted, worked = (int(row[name]) for name in ("tp", "batch", count, work))
    except ValueError as error:
        raise HardwareError(f"{path} line {line}: {error}; write a number") from error
    if seconds <= 0.0:
        raise HardwareError(f"{path} line {line}: t_total_ms must be above 0")
    return Iteration(row["gpu"], row["model"], tp, phase, batch, counted, worked, seconds)


def predict_s(coefficients: Sequence[float], rows: Sequence[Iteration]) -> Floats:
    """Seconds the three coefficients give for each row."""
    seconds: Floats = _design(rows) @ np.asarray(coefficients, dtype=np.float64)
    return seconds


def relative_errors(coefficients: Sequence[float], rows: Sequence[Iteration]) -> Floats:
    """Signed relative error of each row, as a fraction."""
    errors: Floats = predict_s(coefficients, rows) / np.array([row.seconds for row in rows]) - 1.0
    return errors


def error_percent(errors: Floats) -> ErrorPercent:
    """Mean and 95th percentile of the absolute errors, in percent."""
    percent = np.abs(errors) * 100.0
    return ErrorPercent(float(percent.mean()), float(np.percentile(percent, 95)))


def fit_phase(rows: Sequence[Iteration]) -> PhaseFit:
    """Fit all rows of one (GPU, model, tp, phase), and judge it on batch sizes it has not seen."""
    coefficients = fit_coefficients(rows)
    batches = sorted({row.batch for row in rows})
    held_out = [_errors_without(rows, batch) for batch in batches] if len(batches) > 1 else []
    unseen = np.concatenate(held_out) if held_out else np.array([np.nan])
    fitted = error_percent(relative_errors(coefficients, rows))
    return PhaseFit(coefficients, fitted, error_percent(unseen), len(rows))


def fit_coefficients(rows: Sequence[Iteration]) -> tuple[float, float, float]:
    """Non-negative coefficients with the least sum of squared relative errors.

    With three unknowns the constrained optimum is the best feasible one among the unconstrained optima of
    all subsets of columns, so no iterative solver is needed.
    """
    weighted = _design(rows) / np.array([row.seconds for row in rows])[:, None]
    target = np.ones(len(rows))
    best: tuple[float, Floats] | None = None
    for columns in (subset for size in (3, 2, 1) for subset in combinations(range(3), size)):
        found = np.linalg.lstsq(weighted[:, columns], target, rcond=None)[0]
        if (found < 0.0).any():
            continue
        full = np.zeros(3)
        full[list(columns)] = found
        residual = float(np.square(weighted @ full - target).sum())
        if best is None or residual < best[0]:
            best = (residual, full)
    # Times and regressors are positive, so the intercept alone is always feasible.
    assert best is not None
    intercept, per_count, per_work = (float(value) for value in best[1])
    return intercept, per_count, per_work


def _design(rows: Sequence[Iteration]) -> Floats:
    return np.array([(1.0, row.count, row.work) for row in rows], dtype=np.float64)


def _errors_without(rows: Sequence[Iteration], batch: int) -> Floats:
    coefficients = fit_coefficients([row for row in rows if row.batch != batch])
    return relative_errors(coefficients, [row for row in rows if row.batch == batch])


def report(path: Path) -> str:
    """Coefficients and errors of every (GPU, model, tp, phase) in ``path``, one line each."""
    rows = read_iterations(path)
    lines = [
        "gpu model tp phase rows: intercept_s per_count_s per_work_s | error % mean/p95, held out mean/p95"
    ]
    for key in sorted({(row.gpu, row.model, row.tp, row.phase) for row in rows}):
        group = [row for row in rows if (row.gpu, row.model, row.tp, row.phase) == key]
        fit = fit_phase(group)
        numbers = " ".join(f"{value:.6g}" for value in fit.coefficients)
        errors = f"{fit.fitted.mean:.2f}/{fit.fitted.p95:.2f}, {fit.held_out.mean:.2f}/{fit.held_out.p95:.2f}"
        lines.append(f"{' '.join(map(str, key))} {fit.rows}: {numbers} | {errors}")
    return "\n".join(lines)
