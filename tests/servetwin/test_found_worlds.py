"""Worlds with losses that were broken once, and how; ``python -m tests.swarm`` looks for more."""

from pathlib import Path

import pytest

from servetwin.cli.main import run
from tests.worlds.faulted import play_both

FOUND = {
    "two clients outlive the last host": (
        "system=blitzscale cluster=dgx_h100_2x4 trace.clients=2 trace.client_think_s=0 trace=azure_conv_like "
        "trace.requests=10 trace.tokens_scale=0.2 seed=3 faults=listed "
        "faults.events=1.112531019:host:0+1.177021171:host:1+0.330336631:host:0+0.076727716:host:0"
    ),
    "requests wait for nobody after a run that was lost": (
        "system=distserve_full system.instances.prefill=2 system.instances.decode=6 "
        "system/migration=defragment cluster=blitz_b_2x8 migration.period_ms=50 engine.max_num_seqs=16 "
        "trace=burstgpt_like trace.rate_scale=4 trace.tokens_scale=0.3 trace.limit=10 seed=986 "
        "faults=listed faults.events=2.160762882:host:0"
    ),
    "virtual engines that decode are lost": (
        "model.pp=2 engine=vllm_v0 cluster=blitz_a_1x4 trace=azure_conv_like trace.requests=6 "
        "trace.rate_per_s=20 trace.tokens_scale=0.3 faults=listed faults.events=0.4:replica:0"
    ),
    "micro-batches are lost in the middle of a plan": (
        "model.pp=2 engine.asynchronous=false cluster=blitz_a_1x4 trace=azure_conv_like trace.requests=6 "
        "trace.rate_per_s=20 trace.tokens_scale=0.3 faults=listed faults.events=0.4:replica:0"
    ),
    "requests join a step that is lost": (
        "system=distserve_full cluster=blitz_b_1x4 trace=azure_conv_like trace.requests=20 "
        "trace.rate_per_s=40 trace.tokens_scale=0.2 faults=listed "
        "faults.events=0.3:replica:2+0.300001:replica:3"
    ),
}


@pytest.mark.parametrize("words", FOUND.values(), ids=FOUND)
def test_a_world_that_was_broken_once(words: str) -> None:
    played = play_both([*words.split(), "uncertainty=off"])
    assert played.ends.lost


def test_live_batches_keep_the_limit_of_requests_that_decode(tmp_path: Path) -> None:
    """Batches of live instances came to decode beside as many as the batcher admits: 257 of at most 256."""
    words = (
        "system=blitzscale system.instances.split=false cluster=blitz_b trace=burstgpt_like seed=0 "
        "trace.base_rate_per_s=12 trace.duration_s=300 uncertainty=off"
    )
    assert run(["simulate", *words.split(), f"out={tmp_path / 'out'}"]) == 0
