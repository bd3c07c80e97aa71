"""A run on a profile: what fits is used, what does not is refused, what is forced is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodels.profiles.profile import Lattice, Profile, Stamp
from hwmodels.profiles.profile_file import save_profile
from hwmodels.step_times.engine_terms import engine_terms
from servetwin.cli import main as cli
from tests.worlds.toy_profile import toy_profile

FITTING = Stamp(
    gpu="a100_80g",
    llm="llama3_8b",
    tp=1,
    engine="vllm",
    engine_version="0.19.0",
    precision="bf16",
    source="made up",
    licence="CC0",
    files=(),
)
SKEW = Lattice(((0, 16, 64), (2, 8)), np.array([[0.1, 0.3], [0.4, 0.6], [0.8, 0.5]]))
SMALL = (
    "cluster=a100_x2",
    "trace=azure_conv_like",
    "trace.requests=40",
    "trace.rate_per_s=200",
    "trace.tokens_scale=0.02",
    "engine.max_num_seqs=8",
    "engine.max_num_batched_tokens=64",
    "engine.kv_tokens=4096",
)


def profile(path: Path, **stamp: Any) -> Path:
    save_profile(replace(toy_profile(skew=SKEW), stamp=replace(FITTING, **stamp)), path)
    return path


def command(folder: Path, *words: str) -> list[str]:
    """SMALL with some of its words replaced, and others added."""
    keys = {word.partition("=")[0] for word in words}
    kept = [word for word in SMALL if word.partition("=")[0] not in keys]
    return ["simulate", *kept, f"out={folder}", *words]


def simulated(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(command(folder, *words)) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    capsys.readouterr()
    assert cli.run(command(folder, *words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and not folder.exists()
    return err


def test_a_run_says_which_profile_it_used(tmp_path: Path) -> None:
    path = profile(tmp_path / "p.json", error_band="judged by hand")
    summary = simulated(tmp_path / "run", f"engine.profile={path}")
    step_time = summary["step_time"]
    assert step_time["kind"] == "op tables" and step_time["error_band"] == "judged by hand"
    assert step_time["profile"]["path"] == str(path) and len(step_time["profile"]["sha256"]) == 64
    assert step_time["profile"]["forced"] == []
    assert step_time["overhead"]["step_s"] == engine_terms("vllm", "0.19.0")["overhead"]["step_s"]
    assert summary["imitates"] == "vllm 0.19.0" and summary["requests"]["finished"] == 40


@pytest.mark.parametrize(
    ("stamp", "says"),
    [
        ({"gpu": "h100"}, "it was measured on h100, and the run has a100_80g"),
        ({"llm": "llama2_7b"}, "it was measured for llama2_7b"),
        ({"tp": 2}, "it was measured at tp=2"),
        ({"engine_version": "0.14.0"}, "stale: measured with vllm 0.14.0, and the run imitates vllm 0.19.0"),
        ({"engine": "sglang"}, "it was measured with sglang"),
        ({"precision": "fp8"}, "stale: measured in fp8"),
    ],
)
def test_a_stale_or_foreign_profile_is_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stamp: dict[str, Any], says: str
) -> None:
    path = profile(tmp_path / "p.json", **stamp)
    sentence = refused(capsys, tmp_path / "refused", f"engine.profile={path}")
    assert says in sentence and "engine.profile_force=true" in sentence
    summary = simulated(tmp_path / "forced", f"engine.profile={path}", "engine.profile_force=true")
    assert [says in reason for reason in summary["step_time"]["profile"]["forced"]] == [True]


def test_a_profile_that_was_edited_is_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = profile(tmp_path / "p.json")
    path.write_text(path.read_text().replace("made up", "made better"))
    assert "changed" in refused(capsys, tmp_path / "refused", f"engine.profile={path}")
    summary = simulated(tmp_path / "forced", f"engine.profile={path}", "engine.profile_force=true")
    assert len(summary["step_time"]["profile"]["forced"]) == 1


def test_what_lies_outside_the_tables_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"engine.profile={profile(tmp_path / 'p.json')}"
    assert "engine.max_num_seqs=32" in refused(capsys, tmp_path / "a", path, "engine.max_num_seqs=32")
    assert "has a prompt of" in refused(capsys, tmp_path / "b", path, "trace.tokens_scale=1")
    assert "op_table" in refused(capsys, tmp_path / "c", "engine.step_time=op_table")
    assert "engine.profile" in refused(capsys, tmp_path / "d", path, "engine.step_time=roofline")


def test_the_journal_of_a_run_on_a_profile_is_replayed(tmp_path: Path) -> None:
    path = profile(tmp_path / "p.json")
    scarce = (
        "engine.kv_tokens=800",
        "trace.rate_per_s=5000",
        "trace.tokens_scale=0.1",
        "engine.max_num_seqs=16",
    )
    words = (f"engine.profile={path}", "journal=true", "engine.max_new_tokens=64", *scarce)
    assert simulated(tmp_path / "run", *words)["preemptions"] > 0
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_unequal_contexts_cost_time(tmp_path: Path) -> None:
    whole = toy_profile()
    level: Profile = replace(whole, stamp=FITTING, tables=replace(whole.tables, skew=None))
    save_profile(level, tmp_path / "level.json")
    skewed = simulated(tmp_path / "skewed", f"engine.profile={profile(tmp_path / 'p.json')}")
    even = simulated(tmp_path / "even", f"engine.profile={tmp_path / 'level.json'}")
    assert skewed["tpot_ms"]["mean"] > even["tpot_ms"]["mean"]


@pytest.mark.parametrize(
    ("step_time", "kind"),
    [("op_table", "op tables"), ("linear", "linear"), ("calibrated_roofline", "calibrated roofline")],
)
def test_every_rung_can_stand_on_a_profile(tmp_path: Path, step_time: str, kind: str) -> None:
    path = profile(tmp_path / "p.json")
    summary = simulated(tmp_path / "run", f"engine.profile={path}", f"engine.step_time={step_time}")
    assert summary["step_time"]["kind"] == kind and summary["requests"]["finished"] == 40


def test_a_forced_profile_of_another_version_is_as_far_off_as_runs_show(tmp_path: Path) -> None:
    """One of another GPU is within a factor of 2."""
    forced = (f"engine.profile={profile(tmp_path / 'p.json')}", "engine.profile_force=true", "uncertainty=on")
    newer = simulated(tmp_path / "newer", *forced, "engine.version=0.30.0")
    assert "measured runs" in newer["range_in_short"]
    other = simulated(tmp_path / "other", *forced, "cluster=h100_x4", "engine.version=0.30.0")
    assert "step times x0.50 to x2.00" in other["range_in_short"]
