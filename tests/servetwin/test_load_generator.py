"""Loads of benchmark clients: a first burst, warm-up requests that are not counted, uniform lengths."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import servetwin.run.simulate
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.results.metrics import RunMetrics
from servetwin.results.warmup import WarmupRecorder, recorder_of
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request

LOAD = (
    "trace=poisson", "trace.lengths=300x60", "trace.length_ratio=0.5", "trace.clients=8", "trace.requests=80",
    "trace.client_start_s=0", "cluster=h100_x1", "model=llama3_8b",
)  # fmt: skip
WARM = (*LOAD, "trace.warmup_requests=16")
PLAIN = ("uncertainty=off", "journal=true")
TIMES = ("ttft_ms", "tpot_ms", "e2e_ms")


def run(folder: Path, *words: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    assert cli.run(["simulate", *words, f"out={folder}"]) == 0
    return pd.read_parquet(folder / "requests.parquet"), json.loads((folder / "summary.json").read_text())


def test_all_clients_send_at_once_and_means_include_that_burst(tmp_path: Path) -> None:
    requests, summary = run(tmp_path / "run", *LOAD, *PLAIN)
    assert len(requests) == 80 and (requests["arrival_ns"] == 0).sum() == 8
    decoded = requests["output_tokens"] - 1
    tpot_ms = (requests["e2e_ms"] - requests["ttft_ms"]) / decoded  # as InferenceX computes it
    assert summary["tpot_ms"]["mean"] == pytest.approx(tpot_ms.mean(), rel=1e-9)
    for name in TIMES:
        assert summary[name]["mean"] == pytest.approx(requests[name].mean(), rel=1e-12)
        assert summary[name]["p99"] == pytest.approx(np.quantile(requests[name], 0.99), rel=1e-12)
    first = requests[requests["arrival_ns"] == 0]
    assert first["ttft_ms"].mean() > requests["ttft_ms"].mean()
    assert "warmup" not in summary


def test_counted_requests_do_as_if_there_had_been_no_warm_up(tmp_path: Path) -> None:
    """Instances are empty when they begin, so they take exactly as long; only their clock is later."""
    warm, summary = run(tmp_path / "warm", *WARM, *PLAIN)
    cold, alone = run(tmp_path / "cold", *LOAD, *PLAIN)
    begun_ns = warm["arrival_ns"].min()
    assert (warm["arrival_ns"] == begun_ns).sum() == 8 and begun_ns > 0
    assert summary["warmup"] | {"included_in": ""} == {
        "requests": 16, "finished": 16, "seconds": begun_ns / 1e9, "included_in": "",
    }  # fmt: skip
    assert (warm["request"] - 16 == cold["request"]).all()
    for column in ("prompt_tokens", "output_tokens", *TIMES):
        assert np.allclose(warm[column], cold[column], rtol=0, atol=1e-9), column
    for column in ("arrival_ns", "entered_ns", "first_token_ns", "finish_ns"):
        assert (warm[column] - begun_ns == cold[column]).all(), column
    for name in (*TIMES, "itl_ms"):
        assert summary[name] == pytest.approx(alone[name], rel=1e-9)
    for name in ("throughput", "slo", "clients"):
        assert summary[name] == pytest.approx(alone[name], rel=1e-9)
    assert summary["requests"] == alone["requests"]
    assert summary["duration_s"] == pytest.approx(alone["duration_s"] + begun_ns / 1e9)
    assert summary["gpu_seconds"] == summary["duration_s"]
    assert summary["gpu_load_share"] > 0.9 * alone["gpu_load_share"]
    label = "16 warm-up requests, copies of the first, are run and not counted"
    assert label in summary["trace"]["labels"]


def test_the_warm_up_runs_in_both_modes_and_replays(tmp_path: Path) -> None:
    runs, summary = run(tmp_path / "runs", *WARM, *PLAIN)
    step_by_step, exact = run(tmp_path / "exact", *WARM, *PLAIN, "engine.exact=true")
    pd.testing.assert_frame_equal(runs, step_by_step)
    assert summary["itl_ms"] == exact["itl_ms"] and summary["warmup"] == exact["warmup"]
    assert cli.run(["replay", str(tmp_path / "runs")]) == 0
    again, _ = run(tmp_path / "again", *WARM, *PLAIN)
    assert (tmp_path / "again" / "requests.parquet").read_bytes() == (
        tmp_path / "runs" / "requests.parquet"
    ).read_bytes()
    other, _ = run(tmp_path / "other", *WARM, *PLAIN, "seed=1")
    assert (other["prompt_tokens"] != again["prompt_tokens"]).any()


def test_series_have_the_warm_up_and_end_idle(tmp_path: Path) -> None:
    """The warm-up is a part of the run's series; nothing of it stays in them when it has ended."""
    period = ("series.period_s=0.01", "engine.front_end=none")
    warm, summary = run(tmp_path / "warm", *WARM, *PLAIN, *period)
    cold, _ = run(tmp_path / "cold", *LOAD, *PLAIN, *period)
    begun_ns = warm["arrival_ns"].min()
    assert (warm["scheduled_ns"] - begun_ns == cold["scheduled_ns"]).all()
    series = pd.read_parquet(tmp_path / "warm" / "series.parquet")
    running, done = series["vllm:num_requests_running"], series["vllm:request_success_total"]
    assert running.max() == 8 and running.iloc[-1] == 0 and running.iloc[1] == 8
    assert done.iloc[-1] == 96 and done[series["time_s"] <= summary["warmup"]["seconds"]].max() < 16
    use = pd.read_parquet(tmp_path / "warm" / "use_series.parquet")
    before = use["time_s"] <= summary["warmup"]["seconds"]
    assert (use.loc[before, "gpu_load_share"] > 0).all()


class Both:
    """Records into two recorders."""

    def __init__(self, *recorders: Recorder) -> None:
        self._recorders = recorders

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any) -> None:
            for recorder in self._recorders:
                getattr(recorder, name)(*values)

        return call


def test_the_counted_rows_are_those_without_the_warm_ups_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = RunMetrics()

    def both(metrics: RunMetrics, warmup_requests: int) -> tuple[Any, RunMetrics | None]:
        recorder, warmup = recorder_of(metrics, warmup_requests)
        return Both(recorder, everything), warmup

    monkeypatch.setattr(servetwin.run.simulate, "recorder_of", both)
    requests, summary = run(tmp_path / "run", *WARM, *PLAIN, "engine.front_end=none")
    rows = pd.DataFrame(everything.columns())
    assert len(rows) == 96 and rows["request"].tolist() == list(range(96))
    first = rows[rows["request"] < 16]
    assert (
        first[["prompt_tokens", "output_tokens"]] == first[["prompt_tokens", "output_tokens"]].iloc[0]
    ).all(axis=None)
    assert (first["arrival_ns"] == 0).sum() == 8
    by_hand = rows[rows["request"] >= 16].reset_index(drop=True)
    assert by_hand["arrival_ns"].min() == first["finish_ns"].max(), "when the last has its answer"
    pd.testing.assert_frame_equal(requests[list(by_hand.columns)], by_hand, check_dtype=False)
    for name in TIMES:
        assert summary[name]["mean"] == pytest.approx(by_hand[name].mean(), rel=1e-12)


def test_refused_requests_warm_up_too(tmp_path: Path) -> None:
    """A bucket lets few in: clients of refused warm-up requests go on, and others follow the last."""
    bucket = ("system/admission=token_bucket", "system.admission.rate_per_s=20", "system.admission.burst=3")
    requests, summary = run(tmp_path / "run", *WARM, *PLAIN, *bucket)
    counts, warmup = summary["requests"], summary["warmup"]
    assert counts["arrived"] == 80 == counts["finished"] + counts["rejected"]
    assert warmup["requests"] == 16 and 0 < warmup["finished"] < 16
    assert sum(summary["rejected_reasons"].values()) == counts["rejected"]
    unserved = pd.read_parquet(tmp_path / "run" / "unserved.parquet")
    assert len(unserved) == counts["rejected"] and unserved["request"].min() >= 16
    assert min(requests["arrival_ns"].min(), unserved["arrival_ns"].min()) / 1e9 == warmup["seconds"]


def test_instances_scale_while_they_are_warmed_up(tmp_path: Path) -> None:
    words = ("system=blitzscale", "cluster=blitz_b", "model=llama2_7b", "system.instances.prefill_min=1")
    load = ("trace=poisson", "trace.lengths=600x40", "trace.length_ratio=0.8", "trace.requests=120")
    clients = ("trace.clients=40", "trace.client_start_s=0", "trace.warmup_requests=80")
    _, summary = run(tmp_path / "run", *words, *load, *clients, *PLAIN)
    assert summary["requests"]["finished"] == 120 and summary["warmup"]["finished"] == 80
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_a_sweep_counts_without_the_warm_up(tmp_path: Path) -> None:
    words = [word for word in WARM if word != "trace.clients=8"]
    assert (
        cli.run(["sweep", *words, "trace.clients=4,8", "uncertainty=off", f"out={tmp_path / 'sweep'}"]) == 0
    )
    points = pd.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert points["requests.finished"].tolist() == [80, 80]
    assert points["warmup.requests"].tolist() == [16, 16]


def test_the_recorder_gives_gaps_to_those_who_run() -> None:
    metrics = RunMetrics()
    recorder = WarmupRecorder(metrics, 1)
    recorder.gaps(5 << 20, 0, 3, 1)
    recorder.finished(Request(0, 0, 8, 4, "m"), 4, 10, 40, 0, 0)
    recorder.gaps(7 << 20, 0, 2, 1)
    recorder.finished(Request(1, 50, 8, 3, "m"), 3, 60, 80, 0, 0)
    assert metrics.columns()["request"].tolist() == [1]
    counted, warmup = metrics.gap_sketch.mean_ms(), recorder.warmup.gap_sketch.mean_ms()
    assert counted is not None and warmup is not None
    assert counted / warmup == pytest.approx(7 / 5, rel=0.01)


def test_a_saved_configuration_has_the_keys_only_where_they_are_set() -> None:
    plain = load_config([*LOAD[:2], *LOAD[3:], "out=unused"], "simulate")
    assert "warmup" not in resolved_yaml(plain) and "length_ratio" not in resolved_yaml(plain)


def test_a_saved_configuration_runs_again(tmp_path: Path) -> None:
    config = load_config([*WARM, "out=unused"], "simulate")
    (tmp_path / "config.yaml").write_text(resolved_yaml(config))
    assert load_resolved(tmp_path / "config.yaml") == config
    assert config.trace.warmup_requests == 16 and config.trace.length_ratio == 0.5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["trace=azure_conv_like", "trace.warmup_requests=4"],
            "trace.warmup_requests=4 would change nothing",
        ),
        ([*LOAD, "trace.warmup_requests=-1"], "trace.warmup_requests"),
        (
            [*LOAD[:2], "trace.length_ratio=0"],
            "trace.length_ratio=0.0 is out of range: write a number above 0 up to 1",
        ),
        ([*LOAD[:2], "trace.length_ratio=1.5"], "trace.length_ratio=1.5 is out of range"),
        (["trace=azure_conv_like", "trace.length_ratio=0.8"], "and trace.lengths=null names none"),
        (
            ["trace=poisson", "trace.length_ratio=0.8"],
            "trace.lengths=sharegpt names none: write trace.lengths=1024x",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert cli.run(["simulate", *words, f"out={tmp_path / 'run'}"]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "run").exists()
