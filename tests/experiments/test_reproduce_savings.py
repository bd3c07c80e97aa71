"""The rule of savings and increases: ratio and change within the factor, and small changes by direction."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.figure import Figure, FigureRow
from experiments.common.paired import Estimated
from experiments.common.shown import as_json
from experiments.common.verdict import (
    BAND,
    Claim,
    about,
    at_most,
    by_ratio_alone,
    judged,
    judged_again,
    judged_over,
    shorter,
    times,
    within,
)
from servetwin.cli.main import run

HALF = shorter(50)


@pytest.mark.parametrize(
    ("claim", "ours", "verdict", "alone"),
    [
        # savings: 1 - ratio within the factor
        (HALF, 0.712, "out", "in band"),  # 0.288 of 0.5, 1.74 times less
        (HALF, 0.66, "in band", "in band"),  # 0.34 of 0.5
        (HALF, 0.34, "in band", "in band"),
        (HALF, 0.33, "out", "out"),  # the ratio, 1.52 times less
        (shorter(94), 0.05, "in band", "in band"),
        (shorter(94), 0.10, "out", "out"),  # the ratio decides where little is left
        (shorter(10), 0.86, "in band", "in band"),
        (shorter(10), 0.84, "out", "in band"),  # too much is out as well: 0.16 of 0.10
        (shorter(10), 0.94, "out", "in band"),
        (shorter(47, 75), 0.68, "in band", "in band"),
        (shorter(47, 75), 0.70, "out", "in band"),
        # increases: ratio - 1 within the factor
        (times(1.5), 1.74, "in band", "in band"),
        (times(1.5), 1.76, "out", "in band"),
        (times(1.5), 1.32, "out", "in band"),
        (times(13.5), 9.4, "in band", "in band"),
        (times(13.5), 9.2, "out", "in band"),  # a large multiple: both tests are nearly one
        (times(13.5), 19.7, "in band", "in band"),
        (times(13.5), 20.0, "out", "in band"),
        # on the other side of 1
        (HALF, 1.0, "out", "out"),
        (shorter(10), 1.01, "out", "out"),
        (times(1.1), 0.99, "out", "out"),
        # less than 5 %: a direction, of any size
        (shorter(1.8), 0.999, "direction held", "in band"),
        (shorter(1.8), 0.2, "direction held", "out"),
        (shorter(1.8), 1.001, "direction not held", "out"),
        (shorter(4.99), 0.95, "direction held", "in band"),
        (times(1.02), 0.999, "direction not held", "out"),
        (times(1.049), 1.2, "direction held", "in band"),
        (shorter(5), 0.96, "in band", "in band"),  # 5 % is a size
        (shorter(5), 0.99, "out", "in band"),
        (times(1.05), 1.2, "out", "in band"),
        # no change is claimed: as before
        (times(1.0), 1.4, "in band", "in band"),
        (about(1.0, "about equal"), 0.7, "in band", "in band"),
        (about(0.5, "a level of 0.5"), 0.712, "in band", "in band"),
        (within(0.2, 0.46, "a range"), 0.47, "out", "out"),
    ],
)
def test_the_rule(claim: Claim, ours: float, verdict: str, alone: str) -> None:
    row = judged("a", claim, ours, "", why="measured")
    assert (row.verdict, by_ratio_alone(row), judged_again(row)) == (verdict, alone, verdict)
    assert claim.over_seeds(Estimated(ours, ours, ours))[0] == verdict


def test_a_row_says_which_change_is_out() -> None:
    assert judged("a", HALF, 0.712, "", why="measured").why == "saving 28.8% against 50.0%; measured"
    assert judged("a", times(1.5), 2.0, "", why="m").why == "increase 100.0% against 50.0%; m"
    assert judged("a", shorter(47, 75), 0.70, "", why="m").why == "saving 30.0% against 47.0%; m"
    assert judged("a", HALF, 1.2, "", why="m").why == "on the other side of 1; m"
    assert judged("a", HALF, 0.1, "", why="m").why == "m"  # its ratio is out


@pytest.mark.parametrize(
    ("claim", "ours", "verdict", "alone"),
    [
        (HALF, Estimated(0.6, 0.5, 0.7), "in band", "in band"),
        (HALF, Estimated(0.6, 0.3, 1.1), "not shown", "not shown"),
        (HALF, Estimated(0.72, 0.4, 1.1), "out", "not shown"),
        (shorter(1.8), Estimated(0.99, 0.98, 1.01), "direction not shown", "not shown"),
        (shorter(1.8), Estimated(1.01, 0.98, 1.03), "direction not held", "not shown"),
        (
            shorter(1.8),
            Estimated(0.99, None, None),
            "direction not shown",
            "in band",
        ),  # one seed has no direction
        (HALF, Estimated(0.6, None, None), "in band", "in band"),
    ],
)
def test_the_rule_over_seeds(claim: Claim, ours: Estimated, verdict: str, alone: str) -> None:
    row = judged_over("a", claim, ours, why="measured")
    assert (row.verdict, by_ratio_alone(row), judged_again(row)) == (verdict, alone, verdict)


RATIOS = st.floats(0.01, 100).filter(lambda ratio: abs(ratio - 1) > 1e-6)
PASSED = ("in band", "direction held")


@given(RATIOS, RATIOS)
def test_a_claim_that_holds_has_the_right_side_and_both_sizes(paper: float, ours: float) -> None:
    claim = times(paper)
    held = claim.verdict(ours) in PASSED
    side = (ours > 1) == (paper > 1)
    if claim.is_direction:
        assert held == side
        return
    far = max(ours / paper, paper / ours, abs((ours - 1) / (paper - 1)), abs((paper - 1) / (ours - 1)))
    if abs(far - BAND) > 1e-6:
        assert held == (side and far < BAND)


@given(RATIOS, RATIOS)
def test_the_numerator_may_be_either_system(paper: float, ours: float) -> None:
    """The side of 1 and the class are the same upside down, and of what holds one way the ratio holds."""
    claim, swapped = times(paper), times(1 / paper)
    assert (claim._change(ours) > 0) == (swapped._change(1 / ours) > 0)
    if not 0.95 <= min(paper, 1 / paper) <= 1 / 1.05:  # 4.9 % less is 5.2 % more
        assert claim.is_direction == swapped.is_direction
        if claim.is_direction:
            assert claim.verdict(ours) == swapped.verdict(1 / ours)
    if claim.verdict(ours) == "in band" and abs(abs(math.log(ours / paper)) - math.log(BAND)) > 1e-9:
        assert swapped._holds(1 / ours, 1 / ours)


@given(RATIOS, RATIOS)
def test_the_saving_never_lets_in_what_the_ratio_puts_out(paper: float, ours: float) -> None:
    row = judged("a", times(paper), ours, "", why="measured")
    if row.verdict == "in band":
        assert by_ratio_alone(row) == "in band"
    if by_ratio_alone(row) == "in band":
        assert row.verdict in ("in band", "out", "direction held")


def test_the_papers_own_number_holds() -> None:
    for claim in (HALF, shorter(94), shorter(1), times(13.5), times(1.02), times(1.5)):
        assert claim.verdict(claim.low) in PASSED


# Counting again.


def kept(folder: Path, command: str, *rows: FigureRow) -> dict[str, Any]:
    """Write a figure as the command does; return what it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure("fig1", "Figure 1", tuple(replace(row, saved=(("seed", "s"),)) for row in rows))
    text = as_json(figure, command, None, [])
    (folder / "fig1.json").write_text(text)
    (folder / "sweeps.json").write_text("{}")
    data: dict[str, Any] = json.loads(text)
    return data


def test_kept_results_are_counted_again_without_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = judged_over("far", HALF, Estimated(0.712, 0.70, 0.73), why="")
    limit = judged("limit", at_most(1.0, "not longer"), 0.5, "0.5", why="")
    first = kept(tmp_path / "q", "servetwin reproduce quart fig1 out=q", far, limit)
    assert first["rows"][1]["judged"]["low"] is None  # JSON has no infinity
    first["rows"][0]["verdict"] = "in band"  # as a rule of before would have it
    (tmp_path / "q" / "fig1.json").write_text(json.dumps(first))
    small = judged_over("small", shorter(1.8), Estimated(0.98, 0.97, 0.99), why="")
    kept(tmp_path / "all" / "llumnix", "servetwin reproduce all out=all", small)
    assert run(["reproduce", "verdicts", str(tmp_path / "q"), str(tmp_path / "all")]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = "held against a number of the paper: 0 in band, 1 out, 0 not shown, 0 not comparable"
    assert f"  1 {said}" in lines and f"  2 {said}; direction 1 held, 0 not held, 0 not shown" in lines
    changed = [line.split("ours ")[1] for line in lines[-2:]]
    assert changed == [
        "0.712 [0.700, 0.730]: in band by the ratio alone, out",
        "0.980 [0.970, 0.990]: in band by the ratio alone, direction held",
    ]
    assert lines[-3] == "2 rows would be judged otherwise by the ratio alone"
    assert lines[-2].startswith("  quart fig1, far: paper 50 % shorter, ")
    assert run(["reproduce", "verdicts", str(tmp_path / "q"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["counts"]["quart"]["own_analysis"]["in band"] == 1 and data["earlier"] == []
    assert [(row["name"], row["by_ratio_alone"], row["verdict"]) for row in data["changed"]] == [
        ("far", "in band", "out")
    ]


def test_results_of_an_earlier_version_are_counted_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = kept(tmp_path, "servetwin reproduce quart fig1 out=q", judged("a", HALF, 0.712, "", why=""))
    (row,) = data["rows"]
    del row["judged"]
    row["verdict"] = "in band"
    (tmp_path / "fig1.json").write_text(json.dumps(data))
    assert run(["reproduce", "verdicts", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "1 in band, 0 out" in text and "1 of 1 figures kept no numbers" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "takes folders"),
        (["out=here"], "takes folders"),
        (["nowhere"], "nowhere has no figure"),
        (["a", "b"], "fig1 of quart is in a/fig1.json and in b/fig1.json"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        kept(Path(folder), "servetwin reproduce quart fig1 out=q", judged("a", HALF, 0.5, "", why=""))
    assert run(["reproduce", "verdicts", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
