"""A sweep on a running Ray cluster, and on Slurm where it runs: the same table, stopped and gone on."""

import json
import shutil
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.sweeps.sweep_folder import SHARDS
from tests.worlds.local_slurm import local_slurm
from tests.worlds.ray_clusters import cluster_of

TINY = ("trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=10", "cluster=a100_x2")
AXES = ("system/dispatch=least_outstanding,round_robin", "seed=0,1,2")


def swept(out: Path, *words: str) -> bytes:
    assert cli.run(["sweep", *TINY, *AXES, *words, f"out={out}"]) == 0
    return (out / "sweep.parquet").read_bytes()


def keep_first(out: Path, count: int) -> None:
    """As a sweep leaves it that is killed after so many points, with jobs that had finished none."""
    shutil.rmtree(out / SHARDS, ignore_errors=True)
    file = out / "points.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:count]))


def ids_of(out: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (out / "points.jsonl").read_text().splitlines()]


def gone_on(out: Path, *words: str) -> None:
    """Points that were kept stay as they are, each other one is run once."""
    before, whole = ids_of(out), (out / "sweep.parquet").read_bytes()
    keep_first(out, 2)
    assert swept(out, *words) == whole
    after = ids_of(out)
    assert after[:2] == before[:2] and sorted(after) == sorted(before)


@pytest.mark.ray
def test_a_sweep_on_a_ray_cluster_has_the_table_of_this_machine(tmp_path: Path) -> None:
    here = swept(tmp_path / "here", "processes=1")
    with cluster_of(2) as cluster:
        words = ("launcher=ray", f"ray.address={cluster.address}")
        assert swept(tmp_path / "ray", *words) == here
        gone_on(tmp_path / "ray", *words)


def test_a_sweep_on_slurm_has_the_table_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with local_slurm(tmp_path / "slurm"):
        here = swept(tmp_path / "here", "processes=1")
        assert swept(tmp_path / "jobs", "launcher=slurm", "slurm.jobs=2") == here
        gone_on(tmp_path / "jobs", "launcher=slurm", "slurm.jobs=2")
