"""Runs of engines that step together: from the command line to the summary, and what does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_llm
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from serving.vocabulary.errors import UserError
from tests.worlds.toy_mixture import GROUP, SMALL, mixture_profile


def run(folder: Path, *words: str) -> dict[str, Any]:
    path = folder.parent / "profile.json"
    if not path.exists():
        mixture_profile(path)
    words = ("cluster=rtx_pro_6000_x4", *words, f"engine.profile={path}", f"out={folder}")
    assert cli.run(["simulate", *SMALL, *GROUP, *words]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_a_group_runs_alike_step_by_step_and_its_journal_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(tmp_path / "run", "journal=true")
    shown = capsys.readouterr().out
    exact = run(tmp_path / "exact", "engine.exact=true")
    names = [tmp_path / name / "requests.parquet" for name in ("run", "exact")]
    assert names[0].read_bytes() == names[1].read_bytes()
    groups = summary["data_parallel"]
    assert groups == exact["data_parallel"]
    assert (groups["groups"], groups["ranks"]) == (2, 2)
    assert 0 < groups["dummy_steps"] < groups["steps"] and 0 < groups["waiting_share"] < 1
    assert summary["sim"]["events"] < 0.6 * exact["sim"]["events"]
    assert "dummy steps" in shown and "waits for slowest" in shown
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
    assert summary["requests"]["finished"] == 40


def test_a_group_is_lost_together(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "faults=one_replica", "faults.at_s=0.3", "faults.replica=3")
    assert summary["faults"][0]["replicas"] == [2, 3]
    assert all("data-parallel group" in reason for reason in summary["failed_reasons"])
    assert summary["requests"]["failed"] + summary["requests"]["finished"] == 40


def composed(*words: str) -> Any:
    return load_config([*SMALL, "cluster=rtx_pro_6000_x4", *words, "out=OUT"], "simulate")


def test_requests_before_a_group_are_shared_out_as_by_vllm_unless_another_way_is_written() -> None:
    assert composed().system.dispatch.name == "least_outstanding"
    assert composed(*GROUP).system.dispatch.name == "waiting_running"
    assert composed(*GROUP).system.dispatch.params == {"counts_age_ms": 100.0}
    assert composed(*GROUP, "system.dispatch.counts_age_ms=0").system.dispatch.params == {"counts_age_ms": 0}
    for other in ("least_outstanding", "round_robin"):
        assert composed(*GROUP, f"system/dispatch={other}").system.dispatch.name == other


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cluster=dgx_h100", "system=blitzscale", "engine=blitz_native"], "does not fit system=blitzscale"),
        (["cluster=dgx_h100", "system=distserve_full", "engine=distserve"], "fit system=distserve_full"),
        (["cluster=dgx_h100", "cluster.start=host"], "does not fit cluster.start=host"),
        (["cluster=rtx_pro_6000_x3"], "does not divide the 3 GPUs of cluster=rtx_pro_6000_x3"),
        (["cluster=rtx_pro_6000_x4", "models=zipf", "models.count=2"], "does not fit models=zipf"),
    ],
)
def test_what_groups_are_not_built_for_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=r"^engine\.data_parallel_size=2 ") as error:
        load_config([*SMALL, *GROUP, *words, "out=OUT"], "simulate")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("system", "tier"),
    [
        (["system=serverlessllm"], "host"),
        (["system=blitzscale"], "gpu"),
        (["system=blitzscale", "system.instances.split=false"], "gpu"),
    ],
)
def test_loads_of_a_mixture_move_exactly_its_bytes_and_live_instances_run_its_layers(
    tmp_path: Path, system: list[str], tier: str
) -> None:
    profile = mixture_profile(tmp_path / "profile.json", gpu="a100_80g")
    words = ["cluster=blitz_b_2x4", "trace=azure_code_like", "trace.tokens_scale=0.015", "trace.requests=400"]
    words += ["trace.rate_per_s=300", f"engine.profile={profile}", "engine.profile_force=true"]
    taken = {word.partition("=")[0] for word in words}
    small = [word for word in SMALL if word.partition("=")[0] not in taken]
    assert cli.run(["simulate", *small, *system, *words, f"out={tmp_path / 'run'}"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    loads = summary["loads"]
    assert loads["count"] >= 2 and loads["stopped"] == 0
    size_bytes = load_llm("qwen3_30b_a3b").weight_bytes
    moved = dict.fromkeys(("gpu", "host", "ssd", "remote"), 0) | {tier: loads["count"] * size_bytes}
    assert loads["bytes_by_tier"] == moved
    assert summary["requests"]["finished"] == 400
    if "system=blitzscale" in system:
        assert summary["live"]["requests"] > 0 and max(summary["live"]["layer_counts_seen"]) < 48
