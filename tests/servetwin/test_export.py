"""What is exported for other tools: their names and units, and the same numbers when it is read again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.compare.formats import read_measured
from traces.load import load

TINY = ("trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=10", "uncertainty=off")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    assert cli.run(["simulate", *TINY, "cluster=a100_x2", f"out={out}"]) == 0
    return out


def exported(run: Path, form: str, out: Path) -> str:
    assert cli.run(["export", str(run), f"to={form}", f"out={out}"]) == 0
    return out.read_text(encoding="utf-8")


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def test_aiperf_has_a_block_of_statistics_per_metric(run: Path, tmp_path: Path) -> None:
    found = json.loads(exported(run, "aiperf", tmp_path / "a.json"))
    summary = summary_of(run)
    ttft = found["time_to_first_token"]
    assert ttft["unit"] == "ms" and ttft["count"] == 40
    assert ttft["avg"] == pytest.approx(summary["ttft_ms"]["mean"])
    assert ttft["p99"] == pytest.approx(summary["ttft_ms"]["p99"])
    throughput = found["request_throughput"]
    assert throughput == {"unit": "requests/sec", "avg": pytest.approx(40 / summary["duration_s"])}


def test_inference_perf_counts_in_seconds(run: Path, tmp_path: Path) -> None:
    found = json.loads(exported(run, "inference_perf", tmp_path / "i.json"))
    summary = summary_of(run)
    latency = found["successes"]["latency"]
    assert latency["time_to_first_token"]["median"] == pytest.approx(summary["ttft_ms"]["p50"] / 1000)
    assert latency["request_latency"]["max"] == pytest.approx(summary["e2e_ms"]["max"] / 1000)
    assert (found["successes"]["count"], found["failures"]["count"]) == (40, 0)


@pytest.mark.parametrize("form", ["aiperf_records", "vllm_bench"])
def test_what_is_read_again_is_the_same(form: str, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.json"
    exported(run, form, path)
    back, own = read_measured(path), read_measured(run)
    assert back.format == form.removesuffix("_records")
    for name in ("ttft_ms", "e2e_ms"):
        assert np.allclose(np.sort(back.times[name]), np.sort(own.times[name]), rtol=1e-9)
    assert sorted(back.output_tokens) == sorted(own.output_tokens)


@pytest.mark.parametrize("form", ["aiperf_records", "vllm_bench"])
def test_what_is_exported_is_read_as_the_workload_of_the_run(form: str, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.json"
    exported(run, form, path)
    again, own = load("file", path=path), load("azure_conv_like", requests=40, rate_per_s=10.0)
    assert again.prompt_tokens.tolist() == own.prompt_tokens.tolist()
    assert again.output_tokens.tolist() == own.output_tokens.tolist()
    gaps_ns = np.diff(again.arrival_ns) - np.diff(own.arrival_ns)
    assert np.abs(gaps_ns).max() <= 1000


def test_a_file_is_not_replaced_unless_asked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(run, "aiperf", tmp_path / "a.json")
    again = ["export", str(run), "to=aiperf", f"out={tmp_path / 'a.json'}"]
    assert cli.run(again) == 2 and "overwrite=true" in capsys.readouterr().err
    assert cli.run([*again, "overwrite=true"]) == 0
    for words in (["to=nothing", "out=b"], ["to=aiperf"], ["to=aiperf", "out=b", "more"]):
        assert cli.run(["export", str(run), *words]) == 2
