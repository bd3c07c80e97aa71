"""The constrained fit on made-up tables, and the committed coefficients against the table they came from."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodels.errors import HardwareError
from hwmodels.step_times.fit import (
    COLUMNS,
    Iteration,
    Line,
    error_percent,
    fit_coefficients,
    fit_largest,
    fit_phase,
    largest_s,
    non_negative,
    read_iterations,
    relative_errors,
)
from hwmodels.step_times.linear_catalogue import LinearKey, linear_entry, linear_keys
from scripts import fit_step_times

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
TABLE = PROFILES / "iteration_times_shared.csv"
FITTED = [key for key in linear_keys() if "fitted_to" in linear_entry(key)]
ORIGINS = ("fitted_to", "fitted_profile")


def decode_rows(intercept: float, per_sequence: float, per_context: float) -> list[Iteration]:
    grid = [(n, n * context) for n in (1, 4, 16, 64) for context in (128, 1024, 4096)]
    return [
        Iteration(
            gpu="g",
            model="m",
            tp=1,
            phase="decode",
            batch=n,
            count=n,
            work=total,
            seconds=intercept + per_sequence * n + per_context * total,
        )
        for n, total in grid
    ]


def test_the_fit_recovers_exact_coefficients() -> None:
    truth = (1e-2, 4e-5, 8e-8)
    fit = fit_phase(decode_rows(*truth))
    assert fit.coefficients == pytest.approx(truth, rel=1e-9)
    assert fit.fitted.p95 < 1e-6 and fit.held_out.p95 < 1e-6


@pytest.mark.parametrize("truth", [(-2e-5, 4e-5, 8e-8), (1e-2, -2e-5, 8e-7), (1e-2, 4e-4, -1e-9)])
def test_a_coefficient_that_wants_to_be_negative_becomes_zero(truth: tuple[float, float, float]) -> None:
    rows = decode_rows(*truth)
    found = fit_coefficients(rows)
    assert all((got == 0.0) == (wanted < 0.0) for got, wanted in zip(found, truth, strict=True))


def test_the_constrained_fit_is_a_minimum() -> None:
    """No feasible step away from the optimum lowers the sum of squared relative errors."""
    rows = decode_rows(1e-2, -2e-5, 8e-7)
    found = fit_coefficients(rows)

    def loss(coefficients: Sequence[float]) -> float:
        return float((relative_errors(coefficients, rows) ** 2).sum())

    for index in range(3):
        for step in (-1e-3, 1e-3):
            moved = list(found)
            moved[index] = max(0.0, moved[index] * (1 + step) + (1e-9 if moved[index] == 0.0 else 0.0))
            assert loss(moved) >= loss(found)


def test_a_table_without_a_column_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    table.write_text("gpu,model,tp,phase,batch,tokens,sum_sq,total_context\n")
    with pytest.raises(HardwareError, match=r"times\.csv lacks column 't_total_ms'"):
        read_iterations(table)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("g,m,1,mixed,1,1,1,1,1.0", "phase 'mixed'"),
        ("g,m,1,decode,one,1,1,1,1.0", "line 2.*write a number"),
        ("g,m,1,decode,1,1,1,1,0", "line 2: t_total_ms must be above 0"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, problem: str) -> None:
    table = tmp_path / "times.csv"
    table.write_text(f"{','.join(COLUMNS)}\n{row}\n")
    with pytest.raises(HardwareError, match=problem):
        read_iterations(table)


def test_the_command_exits_2_on_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert fit_step_times.main(["nowhere.csv"]) == 2
    assert "cannot read nowhere.csv" in capsys.readouterr().err


@pytest.mark.skipif(
    not TABLE.exists(), reason="SERVETWIN_PROFILES names no folder with the table of iteration times"
)
@pytest.mark.parametrize("key", FITTED, ids=str)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_committed_coefficients_reproduce_their_declared_errors(key: LinearKey, phase: str) -> None:
    entry = linear_entry(key)
    of = entry["fitted_to"]
    rows = [
        row
        for row in read_iterations(TABLE)
        if (row.gpu, row.model, row.tp, row.phase) == (of["gpu"], of["model"], of["tp"], phase)
    ]
    reproduces(entry, phase, rows)


def reproduces(entry: Mapping[str, Any], phase: str, rows: Sequence[Iteration]) -> None:
    """Coefficients and errors of ``entry`` are what a fit to ``rows`` gives."""
    intercept, per_count, per_work = map(float, entry[phase].values())
    committed = (intercept, per_count, per_work)
    fit = fit_phase(rows)
    assert committed == pytest.approx(fit.coefficients, rel=1e-5, abs=1e-15)
    got = error_percent(relative_errors(committed, rows))
    declared = entry["errors_percent"][phase]
    assert (got.mean, got.p95) == pytest.approx((declared["mean"], declared["p95"]), abs=0.01)
    unseen = (declared["held_out_mean"], declared["held_out_p95"])
    assert (fit.held_out.mean, fit.held_out.p95) == pytest.approx(unseen, abs=0.01)


def test_what_was_not_fitted_says_rough_or_composed() -> None:
    assert len(FITTED) == 2
    for key in linear_keys():
        if not any(origin in linear_entry(key) for origin in ORIGINS):
            assert linear_entry(key)["source"].startswith(("rough declaration", "composed"))


def test_non_negative_least_squares_keeps_the_columns_that_help() -> None:
    rng = np.random.default_rng(0)
    design = rng.uniform(0.0, 1.0, (40, 4)) * [1.0, 1e3, 1e-6, 1e6]
    truth = np.array([2.0, 0.0, 3e6, 4e-6])
    assert non_negative(design, design @ truth) == pytest.approx(truth, rel=1e-9, abs=1e-9)
    assert (non_negative(design, -(design @ truth)) == 0.0).all()


@pytest.mark.parametrize("seed", range(20))
def test_of_columns_that_say_the_same_the_earlier_is_kept_whatever_rounding_says(seed: int) -> None:
    """One batch size leaves intercept and count alike: which is kept decides what is said of others."""
    rows = [row for row in decode_rows(1e-2, 4e-5, 8e-8) if row.batch == 16]
    nudges = 1.0 + 1e-14 * np.random.default_rng(seed).standard_normal(len(rows))
    intercept, per_count, per_work = fit_coefficients(
        [replace(row, seconds=row.seconds * nudge) for row, nudge in zip(rows, nudges, strict=True)]
    )
    assert per_count == 0.0
    assert (intercept, per_work) == pytest.approx((1e-2 + 16 * 4e-5, 8e-8), rel=1e-9)


def test_the_larger_of_two_lines_is_found_in_spite_of_an_outlier() -> None:
    tokens = np.arange(1.0, 101.0)
    zero = np.zeros(100)
    lines = (
        Line(np.stack([zero + 1.0, zero], axis=1), zero),
        Line(np.stack([zero, tokens], axis=1), zero + 5.0),
    )
    seconds = np.maximum(40.0, 5.0 + tokens)
    assert largest_s(lines, np.array([40.0, 1.0])) == pytest.approx(seconds)
    seconds[50] *= 3.0
    found = fit_largest(lines, seconds, seconds, [np.array([seconds[0], 0.5])])
    assert found == pytest.approx([40.0, 1.0], rel=2e-3)


def test_the_command_reprints_iterations_of_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    if not TABLE.exists():
        pytest.skip("SERVETWIN_PROFILES names no folder with the table of iteration times")
    assert fit_step_times.main([str(PROFILES / "splitwise_llama2-70b_tp2_tp8.csv")]) == 0
    assert fit_step_times.main([str(TABLE)]) == 0
    out = capsys.readouterr().out
    assert "h100-80gb llama2-70b 8 decode 105: 0.0298002" in out
    assert "Qwen-72B 4 decode 28: 0.0281988" in out
