"""Every scaler of metrics over HTTP: made-up servers sleep and wake as it says, and the journal replays."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.fake_openai import FakeServer, Settings
from tests.worlds.quick_scalers import NAMES, OFTEN, scaler_words

LOAD = ("trace.limit=60", "trace.rate_scale=20", "trace.tokens_scale=0.1", "http.check_tokens=100")
# On a slow machine the first request ends, and lengths are known, seconds after most have arrived.
MANY = ("trace.limit=240", "trace.rate_scale=80", *LOAD[2:])
VLLM = Settings(step_s=0.01, sleeps="yes", kv_blocks=128)
SGLANG = Settings("sglang", step_s=0.01, sleeps="yes", kv_blocks=2048, block_tokens=1)
OF_VLLM = [
    "vllm:request_generation_tokens",
    "vllm:request_prompt_tokens",
    "vllm:request_time_per_output_token_seconds",
    "vllm:time_to_first_token_seconds",
]


def words_of(servers: list[FakeServer], scaler: Sequence[str], load: Sequence[str] = LOAD) -> list[str]:
    urls = ",".join([server.url for server in servers])
    system = ("system=allcache", "system.instances.split=false", "journal=true")
    return ["run", "world=http", f"http.servers=[{urls}]", *system, *load, *scaler]


def scaled(
    folder: Path,
    scaler: Sequence[str],
    *,
    settings: Settings = VLLM,
    count: int = 2,
    load: Sequence[str] = LOAD,
) -> dict[str, Any]:
    """A run in which servers wake; its summary."""
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeServer(settings)) for _ in range(count)]
        assert realexec_cli.run([*words_of(servers, scaler, load), f"out={folder}"]) == 0
        assert not any(server.asleep for server in servers), "they are left as they were found"
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    real, acts = summary["real"], [event["act"] for event in summary["scale_events"]]
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    assert real["tokens_different"] == 0 < real["tokens_checked"] and real["workers_lost"] == []
    assert acts.count("ready") == real["woken"] >= 1 and acts.count("released") == real["slept"]
    assert cli.run(["replay", str(folder)]) == 0
    return summary


def first_reason(summary: dict[str, Any]) -> str:
    reason: str = next(event["reason"] for event in summary["scale_events"] if event["act"] == "load")
    return reason


@pytest.mark.parametrize("name", NAMES)
def test_servers_wake_by_what_was_scraped_and_the_journal_replays(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = scaled(tmp_path / "run", scaler_words(name), load=MANY if name == "dynamo_throughput" else LOAD)
    assert summary["real"]["metrics_read"] == OF_VLLM
    assert capsys.readouterr().out.splitlines()[-1].endswith(" compared, 0 differ")


def test_a_scaler_of_latencies_reads_sglangs_histograms(tmp_path: Path) -> None:
    keys = ("metric=ttft_mean_ms", "target=2", "sync_s=0.2", "stabilisation_s=0.3")
    hpa = ["system/scaler=hpa", *[f"system.scaler.{key}" for key in keys], *OFTEN]
    summary = scaled(tmp_path / "run", hpa, settings=SGLANG, count=3)
    names = ["sglang:time_per_output_token_seconds", "sglang:time_to_first_token_seconds"]
    assert summary["real"]["metrics_read"] == names
    assert first_reason(summary).startswith("ttft_mean_ms is ")


def test_servers_without_metrics_are_scaled_by_what_the_client_knows(tmp_path: Path) -> None:
    summary = scaled(tmp_path / "run", scaler_words("kpa"), settings=replace(VLLM, metrics=False))
    assert summary["real"]["metrics_read"] == [] and summary["real"]["looks_at_metrics"] == 0


@pytest.mark.parametrize(
    ("settings", "name"), [(VLLM, "vllm:kv_cache_usage_perc"), (SGLANG, "sglang:token_usage")]
)
def test_a_metric_that_a_server_lacks_is_named_before_the_run(
    settings: Settings, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer(settings) as whole, FakeServer(replace(settings, kv_metric=False)) as without:
        words = [*words_of([whole, without], scaler_words("wva_v1")), f"out={tmp_path / 'run'}"]
        assert realexec_cli.run(words) == 2 and not whole.told, "none was put to sleep"
        told = f"system/scaler=wva_v1 reads kv_use, and the server at {without.url} has no metric {name}:"
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_keda_sleeps_all_servers_and_requests_wait_until_one_wakes(tmp_path: Path) -> None:
    zero = [*scaler_words("keda"), "system.instances.both_min=0"]
    few = ("trace.limit=12", "trace.tokens_scale=0.1", "http.check_tokens=100")
    summary = scaled(tmp_path / "run", zero, load=few)
    assert first_reason(summary) == "the trigger concurrency is active"
