"""servetwin compare SIM REAL REAL: distances, verdicts, refusals, decisions; 10 % slower steps turn it red.

The "real" runs are simulations on step times a little faster and slower, marked as real.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.cli.compare_repeats import _rates
from servetwin.compare.decisions import Decision, decisions_of, matched
from servetwin.compare.distance import distance
from tests.worlds.calibrations import law_us, profile

WORDS = (
    "simulate", "model=tiny_llama", "cluster=local", "cluster.gpus=2", "engine=own_workers",
    "engine.max_num_seqs=8", "engine.max_num_batched_tokens=256", "engine.kv_tokens=16384", "uncertainty=off",
    "trace=azure_conv_like", "trace.limit=400", "trace.tokens_scale=0.1",
    "trace.rate_per_s=25", "journal=true",
)  # fmt: skip
DRIFTS = (0.97, 0.99, 1.0, 1.01, 1.03)


def run(folder: Path, slower: float, *words: str, quiet: bool = True) -> Path:
    """A simulation whose steps take ``slower`` times what the law says."""
    steps = folder.with_name(f"{folder.name}.steps")
    profile(steps, lambda *of: slower * law_us(*of), 1.0 if quiet else 2.0)
    assert cli.run([*WORDS, f"engine.profile={steps}", f"out={folder}", *words]) == 0
    return folder


def as_real(folder: Path) -> Path:
    summary = json.loads((folder / "summary.json").read_text())
    summary["real"] = summary.pop("sim")
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("real")
    return [as_real(run(home / str(place), drift)) for place, drift in enumerate(DRIFTS)]


def compared(capsys: pytest.CaptureFixture[str], status: int, *places: Path) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.run(["compare", *map(str, places), "json=true"]) == status
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_true_step_times_agree_and_ten_percent_slower_ones_do_not(
    real: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, 0, run(tmp_path / "right", 1.0), *real)
    assert found["agrees"] and not found["refused"]
    assert {metric: one["verdict"] for metric, one in found["timing"].items()} == dict.fromkeys(
        ("ttft_ms", "tpot_ms", "e2e_ms"), "agrees"
    )
    assert found["timing"]["tpot_ms"]["ratio"]["mean"] == pytest.approx(1.0, abs=0.01)
    slow = compared(capsys, 1, run(tmp_path / "slow", 1.1), *real)
    assert not slow["agrees"] and not slow["refused"]
    assert slow["timing"]["tpot_ms"]["verdict"] == slow["timing"]["e2e_ms"]["verdict"] == "differs"
    assert 1.08 < slow["timing"]["tpot_ms"]["ratio"]["mean"] < 1.3, "more requests share a step, too"
    assert cli.run(["compare", str(tmp_path / "slow"), *map(str, real)]) == 1
    printed = capsys.readouterr().out
    assert "verdict: differs in" in printed and "D_repeat" in printed and "placing" in printed


def test_no_agreement_is_claimed_on_a_noisy_profile(
    real: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = run(tmp_path / "noisy", 1.0, quiet=False)
    found = compared(capsys, 1, twin, *real)
    assert (
        not found["agrees"] and "noisy" in found["refused"][0] and "waited for a core" in found["refused"][0]
    )
    assert {one["verdict"] for one in found["timing"].values()} == {"agrees"}, "the numbers would have it"
    assert cli.run(["compare", str(twin), *map(str, real)]) == 1
    printed = capsys.readouterr().out
    assert "no agreement is claimed: the profile" in printed and "verdict" not in printed


def test_no_agreement_is_claimed_where_real_runs_differ_too_much(
    real: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = as_real(run(tmp_path / "twice", 2.0))
    found = compared(capsys, 1, run(tmp_path / "between", 1.5), real[2], twice)
    assert any("the real runs differ too much among themselves" in one for one in found["refused"])


def test_runs_of_other_requests_are_refused(
    real: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = run(tmp_path / "other", 1.0, "seed=1")
    capsys.readouterr()
    assert cli.run(["compare", str(other), *map(str, real)]) == 2
    assert "is a run of other requests" in capsys.readouterr().err
    assert cli.run(["compare", str(real[0]), str(other), str(real[1])]) == 0, "no repeats: side by side"


def test_one_real_run_is_told_its_decisions(
    real: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = run(tmp_path / "twin", 1.0)
    same = compared(capsys, 0, twin, real[2])["decisions"]
    assert same["rate"]["all"] == 1.0 and same["parting"] is None and same["apart_ms"] == 0
    other = compared(capsys, 0, twin, real[4])["decisions"]
    assert 0.5 < other["rate"]["all"] < 1.0 and other["parting"] is not None
    shutil.copytree(twin, tmp_path / "bare")
    (tmp_path / "bare" / "journal").unlink()
    assert "decisions" not in compared(capsys, 0, tmp_path / "bare", real[2])


def decision(kind: str, *key: Any, at: int = 0, event: str = "[]") -> Decision:
    return Decision(kind, key, at, event, f"{key}")


def test_decisions_match_whenever_they_were_taken() -> None:
    ours = [
        decision("placing", "assign", 0, 0, at=10_000_000, event="a"),
        decision("placing", "assign", 1, 0),
    ]
    theirs = [
        decision("placing", "assign", 1, 0, at=4_000_000),
        decision("placing", "assign", 0, 1, event="a"),
    ]
    found = matched(ours, theirs)
    assert found.counts["placing"] == (2, 2, 1) and found.rate("placing") == found.rate() == 0.5
    assert found.apart_ms == 4.0 and found.rate("scaling") is None
    assert found.parting is not None and found.parting.cause == "timing"
    assert found.parting.first == ours[0] and found.parting.second == theirs[1]
    twice = [decision("scaling", "load", 7)] * 2
    once = matched(twice, twice[:1])
    assert once.counts["scaling"] == (2, 1, 1) and once.parting is not None
    assert (once.parting.second, once.parting.cause) == (None, "observation")


def test_what_only_the_real_run_did_is_told_with_both_counts() -> None:
    load = [decision("scaling", "load", 7)]
    assert _rates([matched([], load)])[1] == "0.0% of 0 and 1"
    assert _rates([matched(load * 3, load)])[1] == "50.0% of 3 and 1"


def test_all_decisions_of_a_journal_are_of_a_kind(real: list[Path]) -> None:
    found = decisions_of(real[0])
    assert found and {one.kind for one in found} == {"placing", "batching"}
    assert sum(one.key[0] == "assign" for one in found) == 400


def test_the_distance_is_the_largest_gap_between_shares() -> None:
    assert distance(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert distance(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])) == 1
    assert distance(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.5])) == 0.5
    many = np.random.default_rng(0).normal(size=(2, 400))
    brute = max(abs((many[0] <= x).mean() - (many[1] <= x).mean()) for x in many.reshape(-1))
    assert distance(many[0], many[1]) == pytest.approx(brute)
