"""The same seed gives the same bytes, in whatever process; another seed does not; exact mode agrees."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]
# A policy that draws, so that its stream is tested too; few KV blocks, so that requests are preempted.
WORDS = (
    "simulate",
    "trace=azure_conv_like",
    "trace.requests=60",
    "trace.utilization=2",
    "system/dispatch=power_of_two",
    "cluster=a100_x2",
    "engine.kv_tokens=16000",
    "engine.max_new_tokens=1024",
    "journal=true",
)


def summary_of(folder: Path) -> dict[str, Any]:
    """What a run found, without what it cost."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary.pop("sim")
    summary.get("decisions", {}).pop("cpu_ms_p99", None)  # measured, as all of sim is
    return summary  # type: ignore[no-any-return]


def simulated(folder: Path, *words: str) -> Path:
    assert cli.run([*WORDS, f"out={folder}", *words]) == 0
    return folder


def in_a_process(folder: Path, hash_seed: str, *words: str) -> Path:
    """A run under another hash seed, into ``run`` of a folder of its own: config.yaml names the place."""
    folder.mkdir()
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from servetwin.cli.main import main; main()",
            *(words or WORDS),
            "out=run",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=patience_s(),
    )
    return folder / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(runs: Path) -> Path:
    return in_a_process(runs / "first", "0")


def test_the_run_is_worth_comparing(first: Path) -> None:
    summary = summary_of(first)
    assert summary["requests"]["finished"] > 40
    assert summary["preemptions"] > 0
    text = (first / "journal").read_text(encoding="ascii")
    assert all(f'["{kind}",' in text for kind in ("assign", "run", "interrupt", "preempt"))


def test_the_same_seed_gives_the_same_bytes_under_another_hash_seed(runs: Path, first: Path) -> None:
    second = in_a_process(runs / "second", "4242")
    for name in ("journal", "requests.parquet", "config.yaml"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert json.dumps(summary_of(first)) == json.dumps(summary_of(second))


def test_another_seed_gives_another_run(runs: Path, first: Path) -> None:
    other = simulated(runs / "other", "seed=1")
    for name in ("journal", "requests.parquet"):
        assert (first / name).read_bytes() != (other / name).read_bytes(), name
    assert summary_of(first)["ttft_ms"] != summary_of(other)["ttft_ms"]


@pytest.mark.parametrize("engine", ["vllm_v1", "vllm_v0"])
def test_exact_mode_finds_the_same(runs: Path, engine: str) -> None:
    coalesced = simulated(runs / engine, f"engine={engine}")
    exact = simulated(runs / f"{engine}_exact", f"engine={engine}", "engine.exact=true")
    assert (coalesced / "requests.parquet").read_bytes() == (exact / "requests.parquet").read_bytes()
    assert summary_of(coalesced) == summary_of(exact)
    steps = [(folder / "journal").read_bytes().count(b"\n") for folder in (coalesced, exact)]
    assert steps[1] > 3 * steps[0], "exact mode goes step by step"


ELASTIC = (
    "simulate",
    "cluster=blitz_b",
    "trace=azure_code_like",
    "trace.rate_scale=4",
    "trace.limit=300",
    "journal=true",
)


@pytest.mark.parametrize("system", ["blitz_multicast", "serverlessllm"])
def test_an_elastic_system_gives_the_same_bytes_under_another_hash_seed(runs: Path, system: str) -> None:
    words = (*ELASTIC, f"system={system}")
    one, other = (in_a_process(runs / f"{system}{seed}", seed, *words) for seed in ("0", "4242"))
    for name in ("journal", "requests.parquet", "config.yaml"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    summary = summary_of(one)
    assert json.dumps(summary) == json.dumps(summary_of(other))
    assert summary["decisions"]["count"] > 0 and len(summary["scale_events"]) > 10
