"""use_series.parquet: what GPUs, links and host memory were used for adds up to what the summary says."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.report.report import use_section
from servetwin.results.use_over_time import area, edges_of, spread
from servetwin.run.prepared import Simulated
from servetwin.run.simulate import execute, prepare

FEW = ("trace.requests=150", "trace.rate_per_s=20", "uncertainty=off", "out=unused")
PLAIN = ("trace=azure_conv_like", "cluster=a100_x4", *FEW)
ELASTIC = ("trace=azure_code_like", "cluster=blitz_b", *FEW)
WORLDS = {
    "static": PLAIN,
    "prefill first": (*PLAIN, "engine=vllm_v0"),
    "exact": (*PLAIN, "engine.exact=true"),
    "a loss": (*PLAIN, "faults=one_replica", "faults.at_s=4"),
    "live scaling": ("system=blitzscale", *ELASTIC),
    "host caches": ("system=serverlessllm", *ELASTIC),
    "hand-over": ("system=distserve_full", *ELASTIC),
    "micro-batches": (*PLAIN, "model.pp=2"),
}


def run(*words: str) -> Simulated:
    return execute(prepare(load_config(list(words), "simulate")))


@pytest.mark.parametrize("world", WORLDS)
def test_it_adds_up_to_the_summary_and_changes_no_run(world: str) -> None:
    done, plain = run(*WORLDS[world], "series.period_s=0.7"), run(*WORLDS[world])
    for name, values in plain.columns.items():
        np.testing.assert_array_equal(values, done.columns[name], err_msg=name)
    use, summary = done.use, done.summary
    assert use is not None and plain.use is None
    span_s = summary["duration_s"]
    assert use["time_s"][-1] == span_s and (use["time_s"][:-1] < span_s).all()
    lasts = np.diff(np.append(0.0, use["time_s"]))

    def total(name: str, held: str | None = None) -> float:
        return float((use[name] * lasts * (1.0 if held is None else use[held])).sum())

    assert total("gpus") == pytest.approx(summary["gpu_seconds"])
    assert total("gpu_load_share", "gpus") == pytest.approx(
        summary["gpu_load_share"] * summary["gpu_seconds"]
    )
    if world == "micro-batches":
        assert "gpu_busy_share" not in use
    else:
        busy_s = sum(summary["replica_busy_share"]) * span_s
        assert total("gpu_busy_share", "instances") == pytest.approx(busy_s)
        assert use["gpu_busy_share"].max() <= 1 + 1e-9
    if world == "host caches":
        assert total("host_cache_bytes") / span_s == pytest.approx(summary["host_cache_bytes"]["mean"])
    _links_add_up(use, summary, lasts, world == "host caches")
    page = use_section(use)
    assert "GPU load and busy" in page and ("Links: NICs" in page) == ("nic_mean_share" in use)


def _links_add_up(use: dict[str, Any], summary: dict[str, Any], lasts: np.ndarray, loads_late: bool) -> None:
    """loads_late: after the last request something still loads, which the summary counts too."""
    for kind, told in summary.get("network", {}).items():
        mean, most = use.get(f"{kind}_mean_share"), use.get(f"{kind}_max_share")
        if mean is None:
            assert told["mean_share"] == 0.0
            continue
        share = (mean * lasts).sum() / lasts.sum()
        assert share == pytest.approx(told["mean_share"]) or (loads_late and share < told["mean_share"])
        assert (mean <= most + 1e-12).all() and most.max() <= told["peak_share"] * (1 + 1e-9)


def test_amounts_are_spread_evenly_and_steps_are_integrated() -> None:
    edges = edges_of(1.0, 2.5)
    assert edges.tolist() == [0.0, 1.0, 2.0, 2.5] and edges_of(1.0, 2.0).tolist() == [0.0, 1.0, 2.0]
    begin, end = np.array([0.5, 2.0, 1.5]), np.array([2.5, 2.0, 1.75])
    assert spread(edges, begin, end, np.array([4.0, 7.0, 1.0])) == pytest.approx([1.0, 3.0, 8.0])
    assert area(edges, [(0.0, 2.0), (0.5, 4.0), (2.25, 0.0)]) == pytest.approx([3.0, 4.0, 1.0])
    assert area(edges, [(1.5, 2.0), (9.0, 1.0)]) == pytest.approx([0.0, 1.0, 1.0])


def test_a_run_with_series_has_the_file_and_the_charts(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*ELASTIC[:-1], "system=allcache", "series.period_s=1", f"out={out}"]
    assert cli.run(["simulate", *words]) == 0
    found = pd.read_parquet(out / "use_series.parquet")
    assert {"gpu_load_share", "gpu_busy_share", "host_cache_bytes", "pcie_max_share"} <= set(found)
    page = (out / "report.html").read_text(encoding="utf-8")
    for caption in ("GPU load and busy", "Links: PCIe", "Host memory with copies"):
        assert caption in page
    assert cli.run(["simulate", *PLAIN[:-1], f"out={tmp_path / 'plain'}"]) == 0
    assert not (tmp_path / "plain" / "use_series.parquet").exists()
    assert "Use over time" not in (tmp_path / "plain" / "report.html").read_text(encoding="utf-8")


def test_a_long_run_is_drawn_with_few_points() -> None:
    times = np.arange(1.0, 20_001.0)
    use = {"time_s": times, "gpu_load_share": np.full(20_000, 0.25), "gpu_busy_share": times / 20_000}
    page = use_section(use)
    assert len(page) < 30_000 and page.count("<svg") == 2
