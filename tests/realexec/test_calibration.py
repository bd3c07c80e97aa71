"""realexec calibrate without processes: what is measured, resumed, called noisy, and written as a profile."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hwmodels.importers.step_profile_file import read_step_profile
from hwmodels.step_times.whole_step_error import held_out_whole_steps
from realexec.calibration.done_log import DoneLog
from realexec.calibration.grid import CalibrationPlan, plan_of
from realexec.calibration.quiet import Spread, noise_of, spread_of
from realexec.calibration.sends import told_of
from realexec.transport_registry import TRANSPORTS
from servetwin.cli import main as cli
from servetwin.cli import real_run
from servetwin.cli import realexec as realexec_cli
from servetwin.run import calibrated
from serving.vocabulary.errors import UserError
from tests.worlds.calibrations import bench, law_us, profile

PLAN = plan_of(max_seqs=4, batch_tokens=64, kv_tokens=2048, repeats=2, quick=True)


class Killed(Exception):
    """In place of SIGKILL."""


def test_the_grid_covers_what_the_engine_takes() -> None:
    plan = plan_of(8, 256, 16384, 5, quick=False)
    assert plan.sequences == (8, 4, 2, 1) and 256 in plan.prompts and plan.prompts[-1] == 2048
    assert plan.contexts[0] == 16 and plan.contexts[-1] == 16384 // 8
    assert PLAN.sequences == (4, 1) and len(PLAN.contexts) == 2


def test_every_step_is_timed_as_it_was(tmp_path: Path) -> None:
    found, record = profile(tmp_path / "profile")
    for (tokens, chunks, cached, n, context), took in found.steps.items():
        if not n and chunks == 1 and cached == 0:
            assert took.median == pytest.approx(law_us(tokens, 1, 0, 0))
        elif not tokens:
            assert took.median == pytest.approx(law_us(0, 0, n, context), rel=1e-3)
        elif n:
            assert took.median == pytest.approx(law_us(tokens, 1, n, context))
    kinds = {(step.prefill_tokens > 0, step.decode_sequences > 0) for step in found.steps}
    assert kinds == {(True, False), (False, True), (True, True)}
    assert {step.decode_sequences for step in found.steps} == {0, 1, 2, 4, 8}
    assert any(step.cached_tokens for step in found.steps) and record["workers_busy"] == 2


def test_a_stopped_calibration_goes_on_where_it_was(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == len(PLAN.units) * PLAN.repeats == 6
        if done == 3:
            raise Killed

    what = {"workers": 2}
    with pytest.raises(Killed), DoneLog(tmp_path, what) as log:
        bench(PLAN, log, on_progress=stop).run()
    assert len(log.entries) == 3
    with log.path.open("ab") as file:
        file.write(b'{"name": "steps of context 16, rep')  # killed while it wrote
    slower: list[tuple[int, int]] = []
    with DoneLog(tmp_path, what) as again:
        with pytest.raises(UserError, match="another calibration writes to"):
            DoneLog(tmp_path, what)
        assert again.resumed == 3 and again.entries == log.entries
        bench(PLAN, again, lambda *of: 2 * law_us(*of), on_progress=lambda *told: slower.append(told)).run()
    assert slower == [(4, 6), (5, 6), (6, 6)] and len(again.entries) == 6
    assert {name: again.entries[name] for name in log.entries} == log.entries, (
        "what was done is not done again"
    )
    with DoneLog(tmp_path, {"workers": 3}) as other:
        assert other.resumed == 0, "other workers, other steps"


@pytest.mark.parametrize(
    ("ratio", "shares", "said"),
    [
        (1.19, (0.0, 0.1, 0.9), None),
        (1.21, (0.0, 0.1, 0.2), "waited for a core: 1.21 s"),
        (None, (0.0, 0.1, 0.2), "does not report"),
        (1.0, (0.1, 0.21, 0.3), "repeats differ.*21%"),
        (1.0, (), "measured twice"),
    ],
)
def test_what_is_noisy(ratio: float | None, shares: tuple[float, ...], said: str | None) -> None:
    found = noise_of(ratio, [Spread(5, 100.0, 100.0, 100.0 + 100.0 * one, 100.0) for one in shares])
    assert len(found) == (said is not None)
    if said:
        assert re.search(said, found[0])


def test_spreads_are_quantiles() -> None:
    found = spread_of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (found.median, found.mean, found.p10, found.p90) == pytest.approx((3.0, 3.0, 1.4, 4.6))
    assert found.share == pytest.approx(3.2 / 3) and spread_of([7.0]).share == 0


def test_a_send_of_kv_is_a_latency_and_a_rate() -> None:
    """Medians of two sizes on the line 5 ms + bytes / (1 GB/s)."""
    small = [(65_536, took_s) for took_s in (0.005, 0.005065536, 0.9)]
    large = [(1_065_536, 0.006065536)]
    found = told_of(small, large)
    assert found["latency_us"] == pytest.approx(5000) and found["bytes_per_s"] == pytest.approx(1e9)
    assert [one["repeats"] for one in found["sends"]] == [3, 1]
    noise = told_of([(65_536, 0.005)], [(1_065_536, 0.004)])
    assert noise["latency_us"] >= 0 and noise["bytes_per_s"] > 0, "more bytes, and yet sooner"


def test_a_profile_is_one_that_runs_take(tmp_path: Path) -> None:
    profile(tmp_path / "profile", lambda *of: 3 * law_us(*of))
    shutil.rmtree(tmp_path / "profile.log")
    found, _ = profile(tmp_path / "profile")  # in place of the one before
    loaded = read_step_profile(tmp_path / "profile")
    stamp = loaded.profile.stamp
    assert (stamp.gpu, stamp.llm, stamp.engine, stamp.precision) == (
        "cpu_core",
        "tiny_llama",
        "servetwin",
        "fp32",
    )
    assert stamp.noise == () and len(loaded.profile.steps) == len(found.steps)
    judged = {one.phase: one for one in held_out_whole_steps(loaded.profile.steps, loaded.profile.apart)}
    assert judged.keys() == {"prefill", "decode", "mixed"}
    assert max(one.mean_percent for one in judged.values()) < 0.1, "chunks and decodes follow each other"
    text = (tmp_path / "profile" / "calibration.json").read_text()
    assert any(hashlib.sha256(text.encode()).hexdigest() in note for note in stamp.notes)
    assert json.loads(text)["quiet"]["noisy"] == []


def test_a_simulated_twin_takes_a_profile_and_says_that_it_is_noisy(tmp_path: Path) -> None:
    profile(tmp_path / "profile", wall_over_cpu=1.5)
    words = (
        "model=tiny_llama", "cluster=local", "engine=own_workers", "engine.max_num_seqs=8",
        "engine.max_num_batched_tokens=256", "engine.kv_tokens=16384", "trace=azure_conv_like",
        "trace.limit=20", "trace.tokens_scale=0.1", f"engine.profile={tmp_path / 'profile'}",
        f"out={tmp_path / 'run'}",
    )  # fmt: skip
    assert cli.run(["simulate", *words]) == 0
    step_time = json.loads((tmp_path / "run" / "summary.json").read_text())["step_time"]
    assert step_time["kind"] == "whole steps"
    assert len(step_time["profile"]["noisy"]) == 1 and "1.50 s passed" in step_time["profile"]["noisy"][0]
    assert "the profile is noisy" in step_time["labels"][0]


def test_plans_of_other_grids_are_not_the_same() -> None:
    assert PLAN.as_dict() == plan_of(4, 64, 2048, 2, quick=True).as_dict()
    assert PLAN.as_dict() != plan_of(4, 64, 2048, 3, quick=True).as_dict()
    assert isinstance(PLAN, CalibrationPlan)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("repeats=0",), "repeats=0 is out of range: write a number from 1 to 1000"),
        (("repeats=many",), "repeats"),
        (("quick=perhaps",), "quick"),
        (("cluster=a100_x2",), "write cluster=local and workers=N"),
        ((), "exists: write the name of a folder that does not, or overwrite=true"),
        (("overwrite=true",), "exists"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_before_a_worker_starts(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(calibrated, "require_torch", lambda: None)
    there = not words or words == ("overwrite=true",)
    if there:  # a folder that is no profile
        (tmp_path / "out").mkdir()
    assert realexec_cli.run(["calibrate", *words, f"out={tmp_path / 'out'}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if there else [])


def test_a_real_run_is_repeated_into_folders_beside_each_other(monkeypatch: Any) -> None:
    outs: list[str] = []

    def once(config: Any, as_json: bool) -> int:
        outs.append(config.out)
        return 4 if len(outs) == 1 else 0

    monkeypatch.setattr(real_run, "_run_once", once)
    assert realexec_cli.run(["run", "repeat=3", "out=out/real"]) == 4, "the worst of them"
    assert outs == ["out/real-1", "out/real-2", "out/real-3"]
    assert realexec_cli.run(["run", "out=out/one"]) == 0 and outs[3:] == ["out/one"]
    for wrong in ("repeat=0", "repeat=often"):
        assert realexec_cli.run(["run", wrong, "out=out/real"]) == 2
    assert len(outs) == 4


@pytest.mark.real
def test_workers_of_this_machine_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing here depends on how fast they are."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    small = ("engine.max_num_seqs=2", "engine.max_num_batched_tokens=64", "engine.kv_tokens=512")
    words = ["calibrate", "workers=2", "quick=true", *small, f"out={tmp_path / 'profile'}"]
    assert realexec_cli.run(words) == 0
    printed = capsys.readouterr().out
    assert "2 workers busy" in printed and f"engine.profile={tmp_path / 'profile'}" in printed
    record = json.loads((tmp_path / "profile" / "calibration.json").read_text())
    assert len(record["steps"]) > 5 and all(step["median_us"] > 0 for step in record["steps"])
    assert set(record["links"]) == set(TRANSPORTS) and len(record["parameters"]) == 3
    assert record["quiet"]["wall_over_cpu"] > 0 and record["kv"]["tokens"] == 512
    few, many = record["kv_sends"]["sends"]
    assert few["bytes"] == 16 * record["kv"]["bytes_per_token"] and many["bytes"] == 32 * few["bytes"]
    assert few["repeats"] == many["repeats"] == 8 and record["kv_sends"]["transport"] == "shared_memory"
    assert record["kv_sends"]["bytes_per_s"] > 0 <= record["kv_sends"]["latency_us"] <= few["median_us"]
    assert [path.name for path in tmp_path.iterdir()] == ["profile"], "what was kept for going on is gone"
    run = (
        "trace.limit=4",
        "trace.tokens_scale=0.02",
        "engine.max_new_tokens=32",
        *small,
        f"engine.profile={tmp_path / 'profile'}",
    )
    assert realexec_cli.run(["run", *run, f"out={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["step_time"]["kind"] == "whole steps"
