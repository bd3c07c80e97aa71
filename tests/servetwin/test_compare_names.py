"""``servetwin compare`` calls each side what it is: simulated, own workers, or servers over HTTP."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.compare.over_time import over_time
from servetwin.compare.own_result import read_result
from servetwin.compare.run_names import name_of, what_ran
from servetwin.report.number_text import NOTHING

WORDS = (
    "simulate", "model=tiny_llama", "cluster=local", "cluster.gpus=2", "engine=own_workers",
    "uncertainty=off", "trace=azure_conv_like", "trace.limit=30", "trace.tokens_scale=0.1",
    "trace.rate_per_s=25", "journal=true",
)  # fmt: skip
VLLM = {
    "servers": [
        {"kind": "vllm", "version": "0.32.0", "address": f"http://127.0.0.1:{port}"} for port in (1, 2)
    ]
}
NAME = "vLLM 0.32.0 over HTTP"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names") / "twin"
    assert cli.run([*WORDS, "series.period_s=0.1", f"out={folder}"]) == 0
    return folder


def as_real(twin: Path, folder: Path, real: Mapping[str, Any]) -> Path:
    """A copy whose summary says that it was a real run."""
    shutil.copytree(twin, folder)
    summary = json.loads((folder / "summary.json").read_text())
    del summary["sim"]
    (folder / "summary.json").write_text(json.dumps(summary | {"real": real}))
    return folder


def test_every_kind_has_its_name(twin: Path, tmp_path: Path) -> None:
    assert name_of(twin) == "simulated" and name_of(tmp_path) is None
    assert what_ran({"real": {"workers": 2}}) == "own workers" and what_ran({"real": VLLM}) == NAME
    mixed = {"servers": [{"kind": "sglang", "version": "0.5"}, {"kind": "openai", "version": ""}]}
    assert what_ran({"real": mixed}) == "SGLang 0.5, an OpenAI-compatible server over HTTP"


@pytest.mark.parametrize(("real", "name"), [(VLLM, NAME), ({"workers": 2}, "own workers")])
def test_a_run_with_a_measured_one_names_both(
    real: dict[str, Any], name: str, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = as_real(twin, tmp_path / "run", real)
    capsys.readouterr()
    assert cli.run(["compare", str(twin), str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(f"  {twin}: ")[0].strip() == "simulated" and "own workers, 30 requests" in lines[0]
    assert lines[1].startswith("step times ") and "error" in lines[1], "what the simulated side is worth"
    assert lines[2].startswith(f"{name} ") and not any(" measured " in line for line in lines)
    assert any(line.startswith(f"simulated and {name} are means") for line in lines)
    assert f"decisions in common with {name}, at whatever time they were taken" in lines
    assert cli.run(["compare", str(run), str(twin / "requests.parquet")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{name:{len(name)}}  {run}: 30 requests finished", "an observed run imitates nothing"
    assert lines[1].split()[0] == "simulated"


def test_runs_of_one_kind_are_first_and_second(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [as_real(twin, tmp_path / name, VLLM) for name in ("a", "b")]
    capsys.readouterr()
    assert cli.run(["compare", *map(str, runs)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"first, {NAME}") and second.startswith(f"second, {NAME}")


def test_repeats_are_named_and_their_batches_left_out(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [as_real(twin, tmp_path / name, VLLM) for name in ("a", "b", "c")]
    capsys.readouterr()
    assert cli.run(["compare", str(twin), *map(str, runs)]) == 0
    printed = capsys.readouterr().out
    assert f"\n{NAME}  {runs[0]}" in printed and f"decisions in common with {NAME}" in printed
    row = next(line for line in printed.splitlines() if line.startswith("  simulated  100.0%"))
    assert row.split("of 30 and 30")[1].split()[:3] == [NOTHING] * 3, "servers batch by themselves"


def test_a_page_shows_both_over_time(twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [as_real(twin, tmp_path / name, VLLM) for name in ("a", "b")]
    for number, places in enumerate(((twin, *runs), (twin, runs[0]), (runs[0], twin))):
        page = tmp_path / f"{number}.html"
        assert cli.run(["compare", *map(str, places), f"page={page}"]) == 0
        text = page.read_text(encoding="utf-8")
        assert "twin (simulated)" in text and f"a ({NAME})" in text
        for label in ("replicas that serve", "requests that decode", "KV memory in use"):
            assert label in text
    capsys.readouterr()


def test_gauges_follow_from_requests_and_scale_events(twin: Path, tmp_path: Path) -> None:
    result = read_result(twin)
    shown = over_time(result, float(result.summary["duration_s"]))
    assert set(shown.gauges) == {"held", "serving", "waiting", "running", "kv"}
    assert (shown.gauges["held"] == 2).all() and shown.gauges["kv"].max() > 0
    arrival, first, finish = (
        result.columns[name] / 1e9 for name in ("arrival_ns", "first_token_ns", "finish_ns")
    )
    for place in (0, 133, 399):
        at_s = shown.time_s[place]
        assert shown.gauges["waiting"][place] == ((arrival <= at_s) & (first > at_s)).sum()
        assert shown.gauges["running"][place] == ((first <= at_s) & (finish > at_s)).sum()
    bare = as_real(twin, tmp_path / "bare", VLLM)
    (bare / "series.parquet").unlink()
    assert "kv" not in over_time(read_result(bare), 1.0).gauges, "no server reported any"
    scaled = read_result(bare)
    scaled.summary["scale_events"] = [
        {"t_s": 0.2, "act": "load", "role": "both", "replica": 1, "model": "m"},
        {"t_s": 0.6, "act": "ready", "role": "both", "replica": 1, "model": "m"},
        {"t_s": 0.8, "act": "released", "role": "both", "replica": 1, "model": "m"},
    ]
    scaled.summary.update({"duration_s": 1.0, "instances": {"max": 2, "mean_by_role": {"both": 1.6}}})
    gauges = over_time(scaled, 1.0).gauges
    at = [int(share * 399) for share in (0.1, 0.4, 0.7, 0.9)]
    assert gauges["held"][at].tolist() == [1, 2, 2, 1] and gauges["serving"][at].tolist() == [1, 1, 2, 1]
    assert np.isfinite(gauges["waiting"]).all()
