"""QUART in whole runs, with single parts off: what the part does is missing then, and nothing else breaks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.assemble.stage_scalers import mean_rate_per_s
from servetwin.assemble.stages import pipelines_of
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import prepare

# Bursts that every stage has to grow for, and lulls in which it can shrink; model, trace and rate in words.
WORDS = (
    "model=whisper_9b",
    "cluster=quart",
    "trace=on_off",
    "trace.spells=fixed",
    "trace.on_s=8",
    "trace.off_s=16",
    "trace.off_to_on=0.05",
    "trace.rate_per_s=30",
    "trace.requests=900",
    "uncertainty=off",
)


def run(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *WORDS, *words, f"out={folder / 'run'}", "overwrite=true"]) == 0
    found: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    assert found["requests"]["finished"] == 900
    return found


def acts(summary: dict[str, Any]) -> Counter[str]:
    return Counter(one["act"] for one in summary["scale_events"])


def sources(summary: dict[str, Any]) -> set[str]:
    """Where replicas loaded from."""
    loads = [one for one in summary["scale_events"] if one["act"] == "load"]
    return {one["reason"].rpartition("from ")[2] for one in loads}


def test_quart_grows_shrinks_and_loads_from_host_memory(tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", "system.stages.hold_s=2")
    assert acts(found)["load"] > 0 and acts(found)["drain"] > 0
    assert sources(found) <= {"ssd", "host"}


@pytest.mark.parametrize("part", ["smoother=none", "compensator=false", "placement=false", "corrector=rate"])
def test_each_part_can_be_off_in_a_run(part: str, tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", f"system.stages.{part}", "system.stages.hold_s=2")
    assert acts(found)["load"] > 0
    assert (acts(found)["drain"] == 0) == (part == "smoother=none")


def test_without_keys_every_load_is_from_ssd(tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", "system.stages.keys=false", "system.stages.hold_s=2")
    assert sources(found) == {"ssd"}


# (rate, replicas of each stage at the start): WideResnet in 5 stages of 129 ms, at loads of 0.4 to 0.9. At 20
# requests/s one replica of each would be a third of what is needed, and queues are there at CV 0.1 too.
UNIFORM = [(3, 1), (5, 1), (7, 1), (20, 3), (20, 4)]


@pytest.mark.parametrize("seed", [3])
@pytest.mark.parametrize(("rate", "replicas"), UNIFORM)
def test_uniform_stages_at_cv_a_tenth_have_no_outstanding_stage(
    rate: int, replicas: int, seed: int, tmp_path: Path
) -> None:
    words = [f"trace.rate_per_s={rate}", f"pipeline.replicas={replicas}", f"seed={seed}"]
    words += ["system.stages.key_rule=outstanding"]
    found = uniform(tmp_path, 0.1, *words)
    assert not {"mark_key", "keep_copy"} & set(acts(found))


def test_the_same_stages_under_bursts_have_key_stages_and_copies(tmp_path: Path) -> None:
    """And the table of stages over time says when."""
    found = uniform(tmp_path, 4, "trace.rate_per_s=7")
    assert acts(found)["mark_key"] and acts(found)["keep_copy"]
    marks = [one for one in found["scale_events"] if one["act"] == "mark_key"]
    assert marks[0]["reason"].startswith("key stages: 2, 3, 4; stage 2: ")
    series = pd.read_parquet(tmp_path / "run" / "stage_series.parquet")
    first = series[(series.stage == 2) & (series.is_key == 1)].time_s.min()
    assert 0 <= first - marks[0]["t_s"] < series.time_s[series.time_s > 0].min()
    assert set(series.is_key) == {0, 1}


def test_inferline_plans_for_the_first_second_or_for_the_rate_that_it_is_told(tmp_path: Path) -> None:
    """In the first second a burst has more than the 30 requests/s of the configuration."""
    reasons = {
        words: run(tmp_path, "system=inferline", *words)["scale_events"][0]["reason"].partition(",")[0]
        for words in ((), ("system.stages.planned_per_s=12.5",), ("system.stages.planned_per_s=null",))
    }
    first, written, planned = reasons.values()
    assert (planned, written) == ("planned for 30.0 requests/s", "planned for 12.5 requests/s")
    assert first == "planned for 79.0 requests/s"
    assert cli.run(["simulate", *WORDS, "system=inferline", "journal=true", f"out={tmp_path / 'again'}"]) == 0
    assert cli.run(["replay", str(tmp_path / "again")]) == 0


@pytest.mark.parametrize(
    ("words", "share"),
    [("system=quart", 0.85), ("system=quart system.stages.most_used=0.5", 0.5), ("system=inferline", 1.0)],
)
def test_the_invariants_are_given_the_bound_of_the_policy(words: str, share: float) -> None:
    base = ["model=whisper_9b", "cluster=quart", "trace=gamma", "trace.requests=2", "out=OUT"]
    prepared = prepare(load_config([*base, *words.split()], "simulate"))
    parts = pipelines_of(prepared.config, prepared.estimates, prepared.hardware_of_model)
    assert parts is not None and parts.scaling is not None
    assert parts.scaling.copies_share == share


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        (("trace.rate_per_s=30",), 30.0),
        (("trace.rate_per_s=30", "trace.rate_scale=0.5"), 15.0),
        (("trace.rate_per_s=30", "trace.time_compression=2"), 60.0),
        (("trace.utilization=0.5",), 20.0),
        (("trace=onsets",), 0.0),
        (("trace=azure_conv",), 0.0),
        (("trace.rate_per_s=30", "trace.window_start_s=10", "trace.window_s=5"), 0.0),
    ],
)
def test_the_mean_rate_of_a_configuration(words: tuple[str, ...], rate: float) -> None:
    """0 where nobody knows it before the trace is read."""
    trace = () if words[0].startswith("trace=") else ("trace=gamma",)
    base = ["system=inferline", "model=whisper_9b", "cluster=quart", "out=OUT"]
    config = load_config([*base, *trace, *words], "simulate")
    assert mean_rate_per_s(config, full_per_s=40.0) == rate


def uniform(folder: Path, cv: float, *words: str) -> dict[str, Any]:
    of_trace = ["trace=gamma", f"trace.gap_cv={cv}", "trace.requests=400", "uncertainty=off"]
    of_model = ["model=wide_resnet", "pipeline.stages=5", "pipeline.cut=layers", "cluster=quart"]
    out = [f"out={folder / 'run'}", "overwrite=true"]
    assert cli.run(["simulate", "system=quart", *of_model, *of_trace, *words, *out]) == 0
    found: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return found


def test_without_anti_windup_replicas_start_long_after_a_burst(tmp_path: Path) -> None:
    """A burst of 8 s, then 40 s of hardly anything: the integral goes on adding after the burst."""
    kept = [word for word in WORDS if not word.startswith(("trace.rate_per_s", "trace.off_s"))]
    words = [*kept, "trace.rate_per_s=10", "trace.off_s=40", "system=quart", "system.stages.smoother=none"]
    words += ["system.stages.bounded=false", "system.stages.proportional=0.02"]
    words += ["system.stages.integral_per_s=0.02", "overwrite=true", f"out={tmp_path / 'run'}"]
    loads = {}
    for anti_windup in ("true", "false"):
        assert cli.run(["simulate", *words, f"system.stages.anti_windup={anti_windup}"]) == 0
        found = json.loads((tmp_path / "run" / "summary.json").read_text())
        loads[anti_windup] = [one["t_s"] for one in found["scale_events"] if one["act"] == "load"]
    assert max(loads["true"]) < 8 and len(loads["true"]) == 15
    assert max(loads["false"]) > 14 and len(loads["false"]) == 30


def test_the_printed_sign_serves_its_requests_late(tmp_path: Path) -> None:
    """With the sign of Algorithm 1 nothing is added to stages that are too slow."""
    printed = run(tmp_path, "system=quart", "system.stages.sign=printed")
    ours = run(tmp_path, "system=quart")
    assert printed["e2e_ms"]["mean"] > 2 * ours["e2e_ms"]["mean"]


def test_step_by_step_is_the_same_run_and_its_journal_replays(tmp_path: Path) -> None:
    """A pass is one step, so nothing is coalesced that could differ."""
    files = []
    for exact in ("false", "true"):
        out = tmp_path / exact
        words = ["system=quart", "system.stages.hold_s=2", f"engine.exact={exact}", "journal=true"]
        assert cli.run(["simulate", *WORDS, *words, f"out={out}"]) == 0
        files.append([(out / name).read_bytes() for name in ("requests.parquet", "stages.parquet")])
        assert cli.run(["replay", str(out)]) == 0
    assert files[0] == files[1]


@pytest.mark.parametrize("system", ["quart system.stages.keys=false", "infless", "cocktail"])
def test_peers_send_what_else_comes_from_ssd(system: str, tmp_path: Path) -> None:
    """INFless's replicas come from SSD, as it says itself."""
    words = [f"system={system.split()[0]}", *system.split()[1:], "system/provision=multicast"]
    found = run(tmp_path, *words, "journal=true")
    assert sources(found) == {"ssd" if system == "infless" else "replica"}
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
