"""Models in stages from the command line: what a run writes and tells, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from servetwin.assemble.stages import factors, stage_replicas
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.config.pipeline_config import PLAIN
from serving.vocabulary.errors import UserError

PIPELINE = ["system=pipeline", "cluster=quart", "trace=poisson", "trace.requests=60", "trace.utilization=0.5"]


def config_of(*words: str) -> RunConfig:
    return load_config([*PIPELINE, *words, "out=x"], "simulate")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pipeline") / "run"
    words = ["model=bert_21b", "pipeline.replicas=1+1+1+1+2+1+1+1", "journal=true"]
    assert cli.run(["simulate", *PIPELINE, *words, f"out={out}"]) == 0
    return out


def test_the_summary_has_a_row_per_stage(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    stages = summary["stages"]
    assert [one["stage"] for one in stages] == list(range(8))
    assert [one["replicas"] for one in stages] == [1, 1, 1, 1, 2, 1, 1, 1]
    assert sum(one["bytes"] for one in stages) == 43_000_000_000
    assert sum(one["exec_ms"] for one in stages) == pytest.approx(137)
    assert all(one["requests"] == 60 for one in stages)
    assert "range" not in summary and summary["requests"]["finished"] == 60
    assert summary["sim"]["events"] <= 60 * 10


def test_passes_are_in_a_file_and_tell_the_same(folder: Path) -> None:
    rows = pq.read_table(folder / "stages.parquet").to_pandas()
    assert len(rows) == 60 * 8
    last = rows[rows["stage"] == 7].sort_values("request")["ended_ns"].to_numpy()
    done = pq.read_table(folder / "requests.parquet")["finish_ns"].to_numpy()
    assert (last == done).all()
    wait = (rows["began_ns"] - rows["arrived_ns"])[rows["stage"] == 4].mean() / 1e6
    stage = json.loads((folder / "summary.json").read_text())["stages"][4]
    assert stage["wait_ms_mean"] == pytest.approx(wait)


def test_the_page_shows_the_stages(folder: Path) -> None:
    assert "<h2>Stages</h2>" in (folder / "report.html").read_text()


def test_it_replays(folder: Path) -> None:
    assert cli.run(["replay", str(folder)]) == 0


def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    assert cli.run(["simulate", f"config={folder}", f"out={tmp_path / 'again'}"]) == 0
    again = (tmp_path / "again" / "stages.parquet").read_bytes()
    assert again == (folder / "stages.parquet").read_bytes()


def test_replicas_share_gpus_only_where_there_are_not_enough() -> None:
    alone = stage_replicas(config_of("model=bert_21b", "pipeline.replicas=6"))
    assert len({one.gpus for one in alone}) == 48
    shared = stage_replicas(config_of("model=bert_21b", "pipeline.replicas=12"))
    used = [one.gpus for one in shared]
    assert len(used) == 96 and max(used.count(gpu) for gpu in set(used)) == 2


def test_the_start_is_spread_over_hosts_unless_it_is_packed() -> None:
    """As Kubernetes places pods: eight stages are on eight of 12 hosts of 4 GPUs, each with idle GPUs."""
    words = ("model=bert_21b",)
    hosts = [one.gpus[0] // 4 for one in stage_replicas(config_of(*words))]
    assert sorted(hosts) == [0, 1, 2, 3, 4, 5, 6, 7]
    packed = [one.gpus[0] for one in stage_replicas(config_of(*words, "pipeline.placement=packed"))]
    assert sorted(packed) == [0, 1, 2, 3, 4, 5, 6, 7]
    two = [one.gpus[0] // 4 for one in stage_replicas(config_of(*words, "pipeline.replicas=2"))]
    assert sorted(two) == sorted([*range(12), *range(4)])


def test_draws_have_the_declared_cv_and_no_order() -> None:
    from dataclasses import replace

    for times, cv in (("lognormal", 0.2), ("gamma", 0.2), ("exponential", 1.0)):
        one = replace(PLAIN, times=times, times_cv=cv)
        drawn = factors(one, 0, "a", 50_000)
        assert drawn.mean() == pytest.approx(1, abs=0.01)
        assert drawn.std() == pytest.approx(cv, rel=0.02)
        assert np.array_equal(factors(one, 0, "a", 1_000), drawn[:1_000])
    assert (factors(replace(PLAIN, times_cv=0.0), 0, "a", 3) == 1.0).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=llama3_8b"], "nobody published stages of model=llama3_8b: write pipeline.stages=4"),
        (["model=opt_13b", "pipeline.batch=2"], "pipeline.batch=2 is of models without KV"),
        (["model=opt_13b", "engine.prefix_caching=true"], "engine.prefix_caching=true is not built for that"),
        (["model=opt_13b", "pipeline.stages=60"], "more than the 40 layers of opt_13b: write fewer"),
        (["model=opt_13b", "pipeline.replicas=9"], "is 72 replicas of 8 stages, each with a GPU of its own"),
        (["system=vllm", "model=bert_21b"], "which system=vllm does not have: write system=pipeline"),
        (["cluster=a100_x8"], "sends activations over links"),
        (["pipeline.replicas=1+2"], "does not fit 8 stages: write one number, or 8"),
        (["pipeline.times=exponential"], "write pipeline.times_cv=1"),
        (["system=quart", "pipeline.moves=true"], "pipeline.moves=true is of KV in stages that scale"),
        (["pipeline.live=true"], "is of stages that scale by themselves and have a common queue"),
        (
            ["model=opt_13b", "system=quart", "pipeline.live=true"],
            "write pipeline.moves=true too",
        ),
        (
            ["system=quart", "pipeline.recut=cv"],
            "write a model that decodes, system=quart and pipeline.moves",
        ),
        (["pipeline.recut=often"], "pipeline.recut=often is unknown: write one of none, time, cv"),
        (
            [
                "model=opt_13b",
                "system=quart",
                "pipeline.moves=true",
                "pipeline.recut=cv",
                "pipeline.recut_stages=8+2",
            ],
            "pipeline.recut_stages=8+2 is no pair of stages",
        ),
        (["pipeline.queue=common"], "pipeline.queue=common is unknown: write one of stage, replica"),
        (["pipeline.stages=3"], "write pipeline.cut=layers"),
        (["pipeline.replicas=50"], "more than the GPUs and CPU cores"),
        (["model=opt_66b_pass", "pipeline.cut=bytes", "pipeline.stages=2"], "write a larger pipeline.stages"),
        (["pipeline.cpu_cores=60"], "with 60 cores each"),
        (["system/migration=least_loaded"], "decides about whole instances"),
        (["system/provision=multicast"], "does nothing with system/scaler=none"),
        (["system=vllm", "model=llama3_8b", "pipeline.batch=2"], "write system=pipeline"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    many = ["pipeline.replicas=4"] if words == ["pipeline.cpu_cores=60"] else []
    named = {word.partition("=")[0] for word in words}
    others = [word for word in PIPELINE if word.partition("=")[0] not in named]
    assert cli.run(["simulate", *others, *many, *words, f"out={tmp_path / 'x'}"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_a_pipeline_is_refused_on_real_workers() -> None:
    with pytest.raises(UserError, match="no parameters that real workers could run"):
        load_config(["system=pipeline", "model=bert_21b", "workers=2", "out=x"], "realexec")


@pytest.mark.parametrize("system", ["quart", "infless", "inferline", "cocktail"])
def test_replicas_come_and_go_and_the_run_replays(system: str, tmp_path: Path) -> None:
    words = ["model=whisper_9b", "cluster=quart_2x4", "trace=gamma", "trace.gap_cv=4", "trace.requests=400"]
    out = tmp_path / system
    more = ["trace.rate_per_s=60", "pipeline.max_replicas=20", "journal=true"]
    assert cli.run(["simulate", f"system={system}", *words, *more, f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["requests"]["finished"] == 400
    acts = {event["act"] for event in summary["scale_events"]}
    assert {"load", "ready"} <= acts
    assert summary["loads"]["bytes_by_tier"]["ssd"] > 0
    assert 3 < summary["instances"]["mean"] <= summary["instances"]["max"] <= 20
    assert 0 < summary["gpu_seconds"] <= 8 * summary["duration_s"]
    assert cli.run(["replay", str(out)]) == 0
