"""Negative controls of migration through the product: what has no effect where its cause is taken away."""

from typing import Any

import pytest

from servetwin.assemble import build
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import execute, prepare
from serving.controller import Controller
from serving.services.colocated.migrating import Migrating

WORDS = [
    "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144", "uncertainty=off", "out=unused",
]  # fmt: skip
# Gloo's rate is below it; and 1.25 kB/s, at which one block takes nearly two hours.
AMPLE_GBPS, NEXT_TO_NOTHING_GBPS = "64", "0.00001"
CROWD = [
    "trace=llumnix_mm", "trace.rate_per_s=3", "trace.requests=300", "engine.kv_tokens=6400",
    "system=llumnix_base",
    "system.migration.migrate_out_threshold=30",
]  # fmt: skip


def crowded(nic_gbps: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Controller]:
    """Four instances whose memory is short: the summary, and the controller as the run leaves it."""
    made, controller_of = list[Controller](), build.controller_of

    def kept(*arguments: Any, **named: Any) -> Controller:
        made.append(controller_of(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(build, "controller_of", kept)
    words = [*WORDS, *CROWD, "cluster=llumnix_4x1", f"cluster.nic_gbps={nic_gbps}"]
    summary = execute(prepare(load_config(words, "simulate"))).summary
    assert summary["requests"]["finished"] > 200 and summary["requests"]["failed"] == 0
    (controller,) = made
    return summary, controller


def assert_nothing_is_kept(controller: Controller) -> None:
    """Every block is free, no move is under way, no instance is in a migration."""
    (service,) = controller.services.values()
    assert isinstance(service, Migrating)
    migrations = service.migrations
    assert not migrations.of_replica and not migrations.moves.senders()
    for engine in controller.engines.values():
        assert engine.ledger.holders() == () and engine.ledger.free_blocks == engine.ledger.total_blocks
        assert not migrations.moves.requests_to(engine.id)


def test_without_bandwidth_nothing_is_committed_and_nothing_stays_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved, controller = crowded(AMPLE_GBPS, monkeypatch)
    assert moved["migrations"]["committed"] > 50, "in this world there is reason to migrate"
    assert_nothing_is_kept(controller)
    summary, controller = crowded(NEXT_TO_NOTHING_GBPS, monkeypatch)
    found = summary["migrations"]
    assert found["started"] > 5 and found["committed"] == 0
    assert sum(found["aborted"].values()) == found["started"] and found["moved_bytes"] == 0
    assert_nothing_is_kept(controller)


AGES_MS = (1, 100, 1_000, 10_000)
SEEDS = (0, 1, 2)


def mean_ttft_ms(age_ms: int, seed: int) -> float:
    """Of short requests on four instances, given to the freest by reports that old."""
    told = f"system.dispatch.reports_age_ms={age_ms}", "system.dispatch.reports_at=ticks"
    trace = "trace=llumnix_ss", "trace.rate_per_s=6.5", "trace.requests=400"
    words = [*WORDS, *told, *trace, "system=infaas_pp", "cluster=llumnix_4x1", f"seed={seed}"]
    return float(execute(prepare(load_config(words, "simulate"))).summary["ttft_ms"]["mean"])


def test_the_older_load_reports_are_the_longer_requests_wait() -> None:
    """All who come between two reports go to the instance that was the freest."""
    means = [sum(mean_ttft_ms(age_ms, seed) for seed in SEEDS) / len(SEEDS) for age_ms in AGES_MS]
    assert means == sorted(means), dict(zip(AGES_MS, means))
    assert means[-1] > 1.2 * means[0]
