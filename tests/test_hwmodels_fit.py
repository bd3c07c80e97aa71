"""The constrained fit on made-up tables, and the committed coefficients against the table they came from."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.fit import (
    COLUMNS,
    Iteration,
    error_percent,
    fit_coefficients,
    fit_phase,
    read_iterations,
    relative_errors,
)
from hwmodels.linear_catalogue import LinearKey, fitted_coefficients, linear_entry, linear_keys
from scripts import fit_step_times

TABLE = Path(os.environ.get("SERVETWIN_PROFILES", "")) / "iteration_times_shared.csv"
FITTED = [key for key in linear_keys() if "fitted_to" in linear_entry(key)]


def decode_rows(intercept: float, per_sequence: float, per_context: float) -> list[Iteration]:
    grid = [(n, n * context) for n in (1, 4, 16, 64) for context in (128, 1024, 4096)]
    return [
        Iteration("g", "m", 1, "decode", n, n, total, intercept + per_sequence * n + per_context * total)
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
    committed = fitted_coefficients(entry, phase)
    fit = fit_phase(rows)
    assert committed == pytest.approx(fit.coefficients, rel=1e-5)
    got = error_percent(relative_errors(committed, rows))
    declared = entry["errors_percent"][phase]
    assert (got.mean, got.p95) == pytest.approx((declared["mean"], declared["p95"]), abs=0.01)
    unseen = (declared["held_out_mean"], declared["held_out_p95"])
    assert (fit.held_out.mean, fit.held_out.p95) == pytest.approx(unseen, abs=0.01)


def test_three_entries_are_fitted_and_the_rest_say_rough() -> None:
    assert len(FITTED) == 3
    for key in set(linear_keys()) - set(FITTED):
        assert linear_entry(key)["source"].startswith("rough declaration")
