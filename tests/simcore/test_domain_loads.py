"""An NVLink domain over several hosts: load times by closed form, and instances that fill its hosts."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.domain_loads import domain_loads
from experiments.blitzscale.load_plans import exact
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import build
from servetwin.assemble.elastic import cluster_map_of
from servetwin.cli import main as cli
from servetwin.planning.layout import DoesNotFit, layout_of
from serving.parameters.cluster_map import ClusterMap
from tests.worlds.refusals import refuses

NS = 1.1e-9  # facts are told at the next whole nanosecond
RACKS = ("gb200_nvl72", "gb300_nvl72")
BIG = ("model=llama3_70b", "model.tp=8", "cluster=gb200_nvl72", "uncertainty=off", "journal=true")
BURSTS = ("trace=burstgpt_like", "trace.requests=600", "trace.base_rate_per_s=12")


def run(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *words, f"out={folder}"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("cluster", RACKS)
@pytest.mark.parametrize("model", ["llama3_70b", "llama3_8b"])
def test_loads_over_the_domain_take_what_the_closed_forms_say(cluster: str, model: str) -> None:
    for row in domain_loads(exact(load_cluster(cluster)), model):
        assert row.simulated_s == pytest.approx(row.closed_s, abs=NS), row.what


@pytest.mark.parametrize("cluster", RACKS)
def test_latencies_of_the_shipped_racks_add_little(cluster: str) -> None:
    for row in domain_loads(build(load_cluster(cluster))):
        assert row.closed_s < row.simulated_s < 1.001 * row.closed_s, row.what


def test_the_first_row_is_the_models_bytes_over_eight_links_by_hand() -> None:
    """Llama-3-70B has 141.1 GB: eight links of 900 GB/s take 19.6 ms, a chain of eight 1.7 ms more."""
    first, *_, last = domain_loads(exact(load_cluster("gb200_nvl72")))[:4]
    assert first.simulated_s == pytest.approx(141.107e9 / (8 * 900e9), rel=1e-4)
    assert last.simulated_s - first.simulated_s == pytest.approx(7 * 1.711e9 / (8 * 900e9), rel=1e-2)


def test_instances_larger_than_a_host_take_whole_hosts_of_one_domain() -> None:
    rack: ClusterMap = cluster_map_of(build(load_cluster("gb200_nvl72")))
    assert rack.regions(4) == [range(first, first + 4) for first in range(0, 72, 4)]
    assert rack.regions(8) == [range(72)] and rack.region_of(37, 8) == range(72)
    racks = cluster_map_of(build(load_cluster("gb200_nvl72_36x4")))
    assert racks.regions(8) == [range(72), range(72, 144)]
    apart = cluster_map_of(build(load_cluster("blitz_a")))
    assert apart.regions(16) == apart.regions(8) == [range(first, first + 8) for first in range(0, 32, 8)]


@pytest.mark.parametrize("system", ["blitzscale", "serverlessllm", "blitz_multicast"])
def test_instances_over_two_hosts_scale_replay_and_are_exact(tmp_path: Path, system: str) -> None:
    words = (*BIG, *BURSTS, f"system={system}")
    summary = run(tmp_path / "runs", *words)
    assert summary["loads"]["count"] > 0 and summary["requests"]["finished"] == 600
    assert cli.run(["replay", str(tmp_path / "runs")]) == 0
    run(tmp_path / "exact", *words, "engine.exact=true")
    frames = [pd.read_parquet(tmp_path / name / "requests.parquet") for name in ("runs", "exact")]
    pd.testing.assert_frame_equal(*frames)


def test_live_scaling_inside_the_domain_uses_nvlink_alone(tmp_path: Path) -> None:
    """141.1 GB over eight links at 67 % of 900 GB/s: 29.25 ms. Two hosts share nothing else."""
    summary = run(tmp_path / "run", *BIG, *BURSTS, "system=blitz_multicast")
    weights_s = summary["starts"]["median_s"]["weights"]
    assert weights_s == pytest.approx(141.107e9 / (8 * 900e9 * 0.67), rel=1e-3)
    moved = {kind: of_kind["bytes"] for kind, of_kind in summary["network"].items()}
    assert moved.pop("nvlink")["parameters"] == pytest.approx(2 * summary["loads"]["bytes_by_tier"]["gpu"])
    assert not any(number for of_kind in moved.values() for number in of_kind.values())


def test_an_instance_over_two_hosts_goes_with_either(tmp_path: Path) -> None:
    words = (*BIG, *BURSTS, "system=blitz_multicast", "faults=one_host", "faults.host=1", "faults.at_s=4")
    summary = run(tmp_path / "run", *words)
    assert summary["faults"][0]["replicas"] == [0], "GPUs 0 to 7 are those of hosts 0 and 1"
    assert summary["requests"]["finished"] == 600
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_replicas_over_two_hosts_start_from_the_ssds_of_both(tmp_path: Path) -> None:
    load = ("trace=poisson", "trace.requests=20", "trace.lengths=100x10", "cluster.start=ssd")
    summary = run(tmp_path / "run", *BIG, *load, "engine.loader=direct", "engine.start_up=none")
    rows = domain_loads(build(load_cluster("gb200_nvl72")))
    (row,) = [row for row in rows if row.what.startswith("SSDs")]
    seconds = summary["loads"]["seconds"]
    assert summary["loads"]["count"] == 9, "each host has a part of one replica"
    assert [seconds["mean"], seconds["max"]] == pytest.approx([row.simulated_s] * 2, abs=NS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["model.tp=4", "cluster=gb200_nvl72_4x6"],
            "does not fit the 6 GPUs of a host of cluster=gb200_nvl72_4x6: write a model.tp of a div",
        ),
        (["cluster.start=host"], "cluster.start=host has a copy in the memory of one host"),
        (
            ["cluster=blitz_a_8x4", "system=blitzscale"],
            "starts instances within one host or one NVLink domain",
        ),
    ],
)
def test_what_no_domain_holds_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    keys = {word.split("=")[0] for word in words}
    mine = [word for word in (*BIG, *BURSTS) if word.split("=")[0] not in keys]
    assert cli.run(["simulate", *mine, *words, f"out={tmp_path / 'run'}"]) == 2
    assert told in capsys.readouterr().err


def test_a_plan_has_layouts_over_hosts_of_a_domain() -> None:
    wide = layout_of(hardware="gb200_nvl72", tp=8, pp=1, words=())
    assert (wide.step, wide.words_of(16)) == (8, ("cluster=gb200_nvl72_4x4", "model.tp=8"))
    narrow = layout_of(hardware="gb200_nvl72", tp=2, pp=1, words=())
    assert (narrow.step, narrow.words_of(16)) == (4, ("cluster=gb200_nvl72_4x4", "model.tp=2"))
    others = {"gb200_nvl72": "a multiple of 4 that divides the 72", "blitz_a": "a divisor of the 8 GPUs"}
    for hardware, told in others.items():
        refuses(DoesNotFit, told, layout_of, hardware=hardware, tp=16, pp=1, words=())
