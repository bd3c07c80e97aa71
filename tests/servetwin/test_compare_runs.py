"""``servetwin compare A B ...``: what differs, by how much, and where the decisions part."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.cli import main as cli
from servetwin.compare.bootstrap import differences
from servetwin.compare.divergence import DECIDED, ENDED, OBSERVED, changed_keys, divergence_of

WORDS = (
    "trace=azure_conv_like",
    "trace.requests=120",
    "trace.rate_per_s=20",
    "cluster=a100_x2",
    "journal=true",
)


def simulated(out: Path, *words: str) -> Path:
    assert cli.run(["simulate", *WORDS, "uncertainty=off", *words, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    slow = simulated(folder / "slow", "engine.max_num_seqs=4")
    return simulated(folder / "usual"), simulated(folder / "again"), slow


def compared(capsys: pytest.CaptureFixture[str], *folders: Path):  # type: ignore[no-untyped-def]
    capsys.readouterr()
    assert cli.run(["compare", *map(str, folders), "json=true"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_run_twice_is_identical(runs, capsys) -> None:  # type: ignore[no-untyped-def]
    (beside,) = compared(capsys, runs[0], runs[1])["against_the_first"]
    assert beside["paired"] == 120
    assert {one["value"] for one in beside["differences"].values()} == {0.0}
    assert all(one["identical"] and not one["distinguishable"] for one in beside["differences"].values())
    assert beside["configuration"] == {}
    assert beside["first_divergence"] is None


def test_a_slower_setting_is_told_with_its_interval_and_its_key(runs, capsys) -> None:  # type: ignore[no-untyped-def]
    (beside,) = compared(capsys, runs[0], runs[2])["against_the_first"]
    ttft = beside["differences"]["ttft_ms.mean"]
    assert ttft["distinguishable"]
    assert 0 < ttft["low"] < ttft["value"] < ttft["high"]
    assert beside["configuration"]["engine.max_num_seqs"] == [256, 4]
    assert beside["first_divergence"]["events"] > 0


def test_the_console_and_the_page_say_the_same(runs, capsys, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = tmp_path / "page.html"
    assert cli.run(["compare", *map(str, runs), f"page={page}"]) == 0
    before = page.read_bytes()
    page.write_text("mine")
    assert cli.run(["compare", *map(str, runs), f"page={page}"]) == 2
    assert page.read_text() == "mine"
    assert cli.run(["compare", *map(str, runs), f"page={page}", "overwrite=true"]) == 0
    assert page.read_bytes() == before
    shown = capsys.readouterr().out
    assert "again against the first, 120 requests paired: every latency is identical." in shown
    assert "not distinguishable" not in shown.splitlines()[0]
    assert "engine.max_num_seqs" in shown
    assert "first difference:" in shown
    text = page.read_text()
    assert f"page={page}</pre>" in text
    assert "slow against the first, 120 requests paired: mean TTFT +" in text
    assert "What differs in the configuration" in text


def test_other_requests_are_not_paired(runs, capsys, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    other = simulated(tmp_path / "other", "seed=1")
    (beside,) = compared(capsys, runs[0], other)["against_the_first"]
    assert beside["paired"] == 0
    assert "not the same ones" in beside["why_not"]


def test_what_is_no_run_is_refused(runs, capsys, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for words in (
        [str(runs[0])],
        [str(runs[0]), str(tmp_path)],
        [*map(str, runs), "page=/nowhere/page.html"],
    ):
        assert cli.run(["compare", *words]) == 2
    assert "page=/nowhere/page.html cannot be written" in capsys.readouterr().err


def journal(folder: Path, *lines: str) -> Path:
    folder.mkdir()
    (folder / "journal").write_text("\n".join(['{"servetwin_journal":6}', *lines]) + "\n")
    return folder


def test_where_two_journals_part_is_told_by_kind(tmp_path: Path) -> None:
    arrived = '["arrived",0,0,9,9,"m",0]'
    first = f'[0,{arrived},[["assign",0,0,"its turn"]]]'
    plain = journal(tmp_path / "a", first, '[5,["opened"],[]]')
    reason = journal(tmp_path / "b", f'[0,{arrived},[["assign",0,0,"0 outstanding"]]]', '[5,["opened"],[]]')
    other = journal(tmp_path / "c", f'[0,{arrived},[["assign",0,1,"its turn"]]]')
    later = journal(tmp_path / "d", first, '[6,["opened"],[]]')
    short = journal(tmp_path / "e", first)
    assert divergence_of(plain, reason) is None, "the same is done for another reason"
    found = {name: divergence_of(plain, one) for name, one in (("c", other), ("d", later), ("e", short))}
    assert [(one.kind, one.events) for one in found.values() if one] == [
        (DECIDED, 0),
        (OBSERVED, 1),
        (ENDED, 1),
    ]
    assert divergence_of(plain, tmp_path) is None, "no journal, no word"


def test_changed_keys_leave_out_where_results_lie() -> None:
    first = {"out": "a", "engine": {"name": "x", "seqs": 1}, "seed": 0}
    assert changed_keys(first, {"out": "b", "engine": {"name": "x", "seqs": 2}}) == {
        "engine.seqs": (1, 2), "seed": (0, None),
    }  # fmt: skip


@given(st.integers(20, 200), st.floats(0.5, 50), st.integers(0, 5))
def test_an_interval_holds_a_shift_that_all_requests_have(count: int, shift: float, seed: int) -> None:
    times = np.random.default_rng(seed).exponential(100, count)
    mean, p99 = differences(times, times + shift, (0.99,))
    assert mean.value == pytest.approx(shift)
    assert mean.low == pytest.approx(shift)
    assert p99.value == pytest.approx(shift)
    assert mean.distinguishable


def test_intervals_of_neighbours_that_are_late_together_are_wide() -> None:
    """A bootstrap of single requests would call this difference certain."""
    bursts = np.repeat(np.random.default_rng(0).choice([-100.0, 110.0], 30), 40)
    (mean,) = differences(np.zeros(len(bursts)), bursts, ())
    alone = 1.96 * bursts.std() / np.sqrt(len(bursts))
    assert (mean.high - mean.low) / 2 > 2 * alone


def test_two_sweeps_are_compared_by_setting_and_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=20", "cluster=a100_x1,a100_x2"]
    for name, more in (("usual", []), ("slow", ["engine.max_num_seqs=2"])):
        assert cli.run(["sweep", *words, *more, "seed=0,1,2", "processes=1", f"out={tmp_path / name}"]) == 0
    capsys.readouterr()
    assert cli.run(["compare", str(tmp_path / "usual"), str(tmp_path / "slow")]) == 0
    shown = capsys.readouterr().out
    assert "slow against usual, 6 points paired" in shown
    line = next(one for one in shown.splitlines() if "cluster=a100_x1" in one and "TTFT mean" in one)
    assert "+" in line
    assert "3 seeds" in line


def test_a_sweep_without_seeds_is_paired_with_the_default_seed_and_other_words_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trace=azure_conv_like", "trace.rate_per_s=20", "cluster=a100_x1,a100_x2", "processes=1"]
    assert cli.run(["sweep", *words, "trace.requests=40", "seed=0,1", f"out={tmp_path / 'seeds'}"]) == 0
    assert cli.run(["sweep", *words, "trace.requests=30", f"out={tmp_path / 'one'}"]) == 0
    capsys.readouterr()
    assert cli.run(["compare", str(tmp_path / "seeds"), str(tmp_path / "one")]) == 0
    shown = capsys.readouterr().out
    assert "only one: trace.requests=30" in shown
    assert ", 1 seed\n" in shown
    assert "2 seeds" not in shown
