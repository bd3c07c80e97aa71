"""Contexts of sequences that share blocks: in total more than the KV memory holds, each token held once."""

import json
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, Simulated, execute, prepare
from tests.worlds.refusals import refuses

BLOCK, SHARED, REQUESTS = 512, 15, 120


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One request, and long after it many that begin with the same 7,680 of 7,744 tokens."""
    path = tmp_path_factory.mktemp("shared") / "shared.jsonl"
    rows = [
        {
            "timestamp": 200_000 if number == 0 else 205_000 + 10 * number,
            "input_length": SHARED * BLOCK + 64,
            "output_length": 200,
            "hash_ids": [*range(SHARED), 1000 + number],
        }
        for number in range(REQUESTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def prepared(*words: str) -> Prepared:
    own = ("trace=azure_conv_like", "trace.requests=10", "cluster=a100_x1", "model=llama3_8b", "out=unused")
    return prepare(load_config([*own, *words], "simulate"))


def done(path: Path, *words: str) -> Simulated:
    words = ("trace=file", "trace.format=mooncake", f"trace.path={path}", "model=llama3_8b", *words)
    return execute(prepare(load_config([*words, "cluster=a100_x1", "out=unused"], "simulate")))


@pytest.mark.parametrize("rung", ["roofline", "linear"])
def test_contexts_that_share_blocks_may_exceed_the_memory(workload: Path, rung: str) -> None:
    """At once some 900,000 tokens of context, beyond the 526,438 and 524,288 that either rung answers for."""
    words = (f"engine.step_time={rung}",)
    limits = prepared(*words).hardware.step.limits
    assert limits.shared and 1.7 * limits.max_context_tokens < REQUESTS * (SHARED * BLOCK + 64)
    run = done(workload, *words)
    assert run.summary["requests"]["finished"] == REQUESTS


def test_a_step_reads_the_shared_tokens_once_for_every_sequence() -> None:
    """The line goes on: ten times the context is ten times the time beyond what no context takes."""
    cost = prepared("engine.step_time=roofline").hardware.rows.decode_cost
    nothing = cost(120, 0)
    assert cost(120, 900_000) - nothing == pytest.approx(10 * (cost(120, 90_000) - nothing), rel=1e-6)


def test_without_sharing_the_range_stays() -> None:
    limits = prepared("engine.prefix_caching=false").hardware.step.limits
    assert not limits.shared and limits.total_context(120) == limits.max_context_tokens


def test_more_memory_than_a_rung_answers_for_is_refused_with_a_size_that_helps(workload: Path) -> None:
    """Its different tokens could exceed what was measured; with the advice they cannot."""
    refuses(
        HardwareError,
        r"write engine\.kv_tokens=524288",
        lambda: done(workload, "engine.step_time=linear", "engine.kv_tokens=2000000"),
    )
    run = done(workload, "engine.step_time=linear", "engine.kv_tokens=524288")
    assert run.summary["requests"]["finished"] == REQUESTS
