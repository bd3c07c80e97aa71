"""trace.clients: requests come as others end: both modes, elastic systems, requests that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.assemble.clients import client_starts_ns
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml

SMALL = ("trace=azure_conv_like", "trace.requests=120", "cluster=a100_x4", "uncertainty=off", "journal=true")
BLITZSCALE = (
    "system=blitzscale",
    "cluster=blitz_b",
    "uncertainty=off",
    "journal=true",
    "trace=azure_conv_like",
)


def run(folder: Path, *words: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    assert cli.run(["simulate", *words, "engine.front_end=none", f"out={folder}"]) == 0
    return pd.read_parquet(folder / "requests.parquet"), json.loads((folder / "summary.json").read_text())


def sent_again(requests: pd.DataFrame, clients: int, think_ns: int) -> None:
    """Each client begins at its drawn time, and sends again when its request has ended."""
    starts = client_starts_ns(load_config([f"trace.clients={clients}", "out=unused"], "simulate"))
    assert len(set(starts)) == clients and starts[0] == 0 and starts[-1] <= 1_000_000_000
    sent = np.sort(np.concatenate([starts, requests["finish_ns"].to_numpy() + think_ns]))
    arrivals = np.sort(requests["arrival_ns"].to_numpy())
    assert (arrivals == sent[: len(arrivals)]).all()


@pytest.mark.parametrize("think_s", [0.0, 0.25])
def test_a_client_sends_its_next_request_when_its_last_has_ended(tmp_path: Path, think_s: float) -> None:
    words = (*SMALL, "trace.clients=8", f"trace.client_think_s={think_s}")
    requests, summary = run(tmp_path / "runs", *words)
    assert len(requests) == 120
    sent_again(requests, 8, round(think_s * 1e9))
    assert "closed loop of 8 clients: arrival times are not the trace's" in summary["trace"]["labels"]
    sent_per_s = 119e9 / requests["arrival_ns"].max()
    told = {"count": 8, "think_s": think_s, "start_s": 1.0, "sent_req_per_s": pytest.approx(sent_per_s)}
    assert summary["clients"] == told
    assert summary["trace"]["mean_rate_per_s"] is None
    step_by_step, _ = run(tmp_path / "exact", *words, "engine.exact=true")
    pd.testing.assert_frame_equal(requests, step_by_step)
    assert cli.run(["replay", str(tmp_path / "runs")]) == 0


FIXED = ("trace=file", "cluster=h100_x1", "trace.clients=16", "uncertainty=off")


def test_clients_with_fixed_lengths_do_not_stay_in_step(tmp_path: Path) -> None:
    """1,024 tokens in and out: begun at once they stay in a few groups, drawn starts keep them apart."""
    rows = [f"{number},1024,1024" for number in range(64)]
    (tmp_path / "t.csv").write_text("\n".join(("arrival_s,prompt_tokens,output_tokens", *rows)) + "\n")
    words = (*FIXED, f"trace.path={tmp_path / 't.csv'}")
    apart, _ = run(tmp_path / "apart", *words)
    at_once, _ = run(tmp_path / "at_once", *words, "trace.client_start_s=0")
    assert at_once["arrival_ns"].nunique() <= 12
    assert apart["arrival_ns"].nunique() >= 60
    exact, _ = run(tmp_path / "exact", *words, "engine.exact=true")
    pd.testing.assert_frame_equal(apart, exact)
    another, _ = run(tmp_path / "another", *words, "seed=1")
    assert (another["arrival_ns"] != apart["arrival_ns"]).any()


def test_clients_whose_requests_are_short_wait_for_nobody(tmp_path: Path) -> None:
    """Clients are through with several requests before the last one begins."""
    words = ("trace=azure_conv_like", "trace.requests=60", "trace.tokens_scale=0.01", "trace.clients=6")
    requests, _ = run(tmp_path / "run", *words, "cluster=h100_x1", "uncertainty=off", "journal=true")
    assert (requests["finish_ns"] < 500_000_000).sum() > 6
    sent_again(requests, 6, 0)
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_clients_of_earlier_runs_began_at_once(tmp_path: Path) -> None:
    config = load_config([*SMALL, "trace.clients=3", "trace.client_start_s=0", "out=unused"], "simulate")
    text = resolved_yaml(config).replace("  client_start_s: 0.0\n", "")
    assert "client_start_s" not in text  # as earlier versions wrote it
    (tmp_path / "config.yaml").write_text(text)
    assert load_resolved(tmp_path / "config.yaml") == config
    assert client_starts_ns(config) == [0, 0, 0]


def test_more_clients_make_more_load_and_longer_waits(tmp_path: Path) -> None:
    few, many = (run(tmp_path / str(clients), *SMALL, f"trace.clients={clients}")[1] for clients in (4, 100))
    assert many["throughput"]["req_per_s"] > few["throughput"]["req_per_s"]
    assert many["e2e_ms"]["mean"] > few["e2e_ms"]["mean"]


def test_instances_come_as_clients_wait(tmp_path: Path) -> None:
    words = (*BLITZSCALE, "trace.requests=300", "trace.clients=100", "system.instances.prefill_min=1")
    requests, summary = run(tmp_path / "run", *words)
    assert len(requests) == 300 and summary["instances"]["max"] > summary["instances"]["mean"]
    sent_again(requests, 100, 0)
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_a_client_whose_request_is_refused_sends_the_next(tmp_path: Path) -> None:
    """A bucket that lets few in: the others are refused at once, and their clients go on."""
    bucket = ("system/admission=token_bucket", "system.admission.rate_per_s=1", "system.admission.burst=5")
    requests, summary = run(tmp_path / "run", *SMALL, "trace.clients=3", *bucket)
    counts = summary["requests"]
    assert counts["arrived"] == 120 and counts["rejected"] > 0
    assert counts["finished"] + counts["rejected"] == 120 and len(requests) == counts["finished"]
    unserved = pd.read_parquet(tmp_path / "run" / "unserved.parquet")
    last_ns = max(requests["arrival_ns"].max(), unserved["arrival_ns"].max())
    assert summary["clients"]["sent_req_per_s"] == pytest.approx(119e9 / last_ns)


@pytest.mark.parametrize("clients", ["trace.clients=8", "trace.clients=8,16"])
def test_a_plan_is_for_a_rate(capsys: pytest.CaptureFixture[str], clients: str) -> None:
    words = ["trace=azure_conv_like", clients, "gpu=a100", "model=llama3_8b", "slo.ttft_p99_ms=500"]
    assert cli.run(["plan", *words]) == 2
    assert "trace.clients lets the rate follow" in capsys.readouterr().err


def test_conversations_have_think_times_of_their_own(tmp_path: Path) -> None:
    """multi_turn's think_s is within its conversations; the clients' is another key."""
    words = ("trace=multi_turn", "trace.requests=40", "cluster=a100_x4", "uncertainty=off", "journal=true")
    requests, summary = run(
        tmp_path / "run", *words, "trace.think_s=5", "trace.clients=8", "trace.client_think_s=2"
    )
    sent_again(requests, 8, 2_000_000_000)
    assert not any("open loop" in label for label in summary["trace"]["labels"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["trace.client_think_s=1"],
            "trace.client_think_s=1 would change nothing: it is read only by clients in a closed loop",
        ),
        (["trace.client_start_s=2"], "trace.client_start_s=2 would change nothing"),
        (["trace.clients=2", "trace.client_start_s=-1"], "trace.client_start_s"),
        (["trace.clients=2", "trace.rate_scale=2"], "trace.rate_scale changes arrival times"),
        (["trace.clients=2", "trace.time_compression=2"], "trace.time_compression changes arrival times"),
        (["trace.clients=2", "trace.rate_per_s=9"], "trace.rate_per_s changes arrival times"),
        (["trace.clients=0"], "trace.clients"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert cli.run(["simulate", *SMALL, *words, f"out={tmp_path / 'run'}"]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "run").exists()
