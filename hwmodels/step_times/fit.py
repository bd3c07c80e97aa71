"""Fits coefficients that are times, by non-negative least squares.

The input is a table of iteration times (``python -m scripts.fit_step_times CSV``), or any rows whose time is
the largest of several lines. The fit is on *relative* error, so that a 10 ms decode step weighs as much as a
1 s prefill. Three coefficients per phase: intercept, per sequence (decode) or per token (prefill), and per
token of total context (decode) or per squared prompt token (prefill).
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.reading import read_limited

PHASES = ("decode", "prefill")
COLUMNS = ("gpu", "model", "tp", "phase", "batch", "tokens", "sum_sq", "total_context", "t_total_ms")
Floats = npt.NDArray[np.float64]
# Relative error above which a row pulls less than its square would (Huber), and how often rows change lines.
ROBUST_ERROR = 0.03
FIT_ROUNDS = 24
# Columns count as dependent below this ratio of singular values. Residuals count as equal within this share
# of the target's square. Both are far above rounding (1e-16) and far below the resolution of tables (1e-3).
DEPENDENT = 1e-9
EQUAL_RESIDUAL = 1e-12
# The same for the lines of a row, and the errors of two fits.
EQUAL_LINES = 1e-9
EQUAL_FIT = 1e-9
_MOST_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
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
        text = read_limited(path, _MOST_BYTES).decode("utf-8")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise HardwareError(f"{path} lacks column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
        return [_iteration(path, number, row) for number, row in enumerate(reader, start=2)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise HardwareError(f"{path} is no CSV ({error}); name a CSV of iteration times") from error
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
    return Iteration(
        gpu=row["gpu"],
        model=row["model"],
        tp=tp,
        phase=phase,
        batch=batch,
        count=counted,
        work=worked,
        seconds=seconds,
    )


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
    """Fit all rows of one (GPU, model, tp, phase), and evaluate the fit on batch sizes it has not seen."""
    coefficients = fit_coefficients(rows)
    batches = sorted({row.batch for row in rows})
    held_out = [_errors_without(rows, batch) for batch in batches] if len(batches) > 1 else []
    unseen = np.concatenate(held_out) if held_out else np.array([np.nan])
    fitted = error_percent(relative_errors(coefficients, rows))
    return PhaseFit(coefficients, fitted, error_percent(unseen), len(rows))


def fit_coefficients(rows: Sequence[Iteration]) -> tuple[float, float, float]:
    """Non-negative coefficients with the least sum of squared relative errors."""
    weighted = _design(rows) / np.array([row.seconds for row in rows])[:, None]
    intercept, per_count, per_work = (float(value) for value in non_negative(weighted, np.ones(len(rows))))
    return intercept, per_count, per_work


def non_negative(design: Floats, target: Floats) -> Floats:
    """Non-negative least squares for a handful of columns.

    The constrained optimum is the best feasible one among the unconstrained optima of all subsets of columns,
    so no iterative solver is needed; the rows are first reduced to as many as there are columns. If columns
    depend on each other several optima exist: fewer columns win, then earlier ones, so that rounding decides
    nothing.
    """
    count = design.shape[1]
    scale = np.abs(design).max(axis=0)
    scale[scale == 0.0] = 1.0
    orthogonal, triangle = np.linalg.qr(design / scale)
    wanted = orthogonal.T @ target
    best = np.zeros(count)
    least = total = float(np.square(wanted).sum())
    for columns in (
        list(subset) for size in range(1, count + 1) for subset in combinations(range(count), size)
    ):
        solution, _, rank, _ = np.linalg.lstsq(triangle[:, columns], wanted, rcond=DEPENDENT)
        if rank < len(columns) or (solution < 0.0).any():
            continue
        full = np.zeros(count)
        full[columns] = solution
        residual = float(np.square(triangle @ full - wanted).sum())
        if residual < least - EQUAL_RESIDUAL * total:
            least, best = residual, full
    coefficients: Floats = best / scale
    return coefficients


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate for the time of every row: ``design @ coefficients + offset_s``."""

    design: Floats
    offset_s: Floats


def largest_s(lines: Sequence[Line], coefficients: Floats) -> Floats:
    """Seconds of every row: its largest line."""
    seconds: Floats = _line_seconds(lines, coefficients).max(axis=0)
    return seconds


def fit_largest(lines: Sequence[Line], seconds: Floats, weight_s: Floats, starts: Sequence[Floats]) -> Floats:
    """Non-negative coefficients whose largest line matches ``seconds``, errors relative to ``weight_s``.

    Each round assigns every row to its largest line, solves, and goes half of the way. Rows with large errors
    weigh less, so that a cliff that no line describes does not distort the rest. The best round over all
    ``starts`` is kept: the result is deterministic.
    """
    best, least = starts[0], np.inf
    every = np.arange(len(seconds))
    designs = np.stack([line.design for line in lines])
    offsets_s = np.stack([line.offset_s for line in lines])
    for coefficients in starts:
        for _ in range(FIT_ROUNDS):
            candidates = designs @ coefficients + offsets_s
            chosen = (candidates >= candidates.max(axis=0) * (1.0 - EQUAL_LINES)).argmax(axis=0)
            errors = (candidates[chosen, every] - seconds) / weight_s
            stretch = np.sqrt(1.0 + np.square(errors / ROBUST_ERROR))
            loss = float((stretch - 1.0).sum())
            if loss < least * (1.0 - EQUAL_FIT):
                best, least = coefficients, loss
            weights = 1.0 / (weight_s * np.sqrt(stretch))
            wanted = (seconds - offsets_s[chosen, every]) * weights
            solved = non_negative(designs[chosen, every] * weights[:, None], wanted)
            coefficients = (coefficients + solved) / 2
    return best


def _line_seconds(lines: Sequence[Line], coefficients: Floats) -> Floats:
    return np.stack([line.design @ coefficients + line.offset_s for line in lines])


def _design(rows: Sequence[Iteration]) -> Floats:
    return np.array([(1.0, row.count, row.work) for row in rows], dtype=np.float64)


def _errors_without(rows: Sequence[Iteration], batch: int) -> Floats:
    coefficients = fit_coefficients([row for row in rows if row.batch != batch])
    return relative_errors(coefficients, [row for row in rows if row.batch == batch])


def report(path: Path) -> str:
    """Coefficients and errors of every (GPU, model, tp, phase) in ``path``, one line each."""
    return report_rows(read_iterations(path))


def report_rows(rows: Sequence[Iteration]) -> str:
    """The ``report`` of rows already read."""
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
