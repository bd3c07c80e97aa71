"""Load and busy told apart: what GPUs served of what they could, and how long steps ran on them."""

from pathlib import Path

import numpy as np
import pytest

from servetwin.assemble.gpu_load import gpu_load_share
from servetwin.assemble.hosted import hosted_models
from servetwin.report.table import facts
from servetwin.results.metrics import RunMetrics, summarize
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.estimates import Estimates, ModelEstimates
from tests.worlds.made_up_results import MS, SLO, SUMMARY, columns, page, request, simulated


def test_by_hand_for_instances_of_one_and_of_four_gpus() -> None:
    config = simulated(
        "cluster=blitz_a_1x8", "models=zipf", "models.count=2", "models.shapes=llama3_8b+llama3_70b:4",
        "models.requests=6", "models.rate_per_s=10", "trace=azure_code_like",
    )  # fmt: skip
    hosted, workload = hosted_models(config), prepare(config).workload
    fast, slow = (
        ModelEstimates(
            model=one.name,
            prefill_tokens_per_s=rate,
            decode_step_s=0.05,
            decode_sequences=10,
            decode_context_tokens=1024,
            kv_tokens=9,
        )
        for one, rate in zip(hosted, (1000.0, 500.0))
    )
    assert [one.tp for one in hosted] == [1, 4] and workload.model is not None
    rows = np.arange(len(workload))
    finished = {"request": rows, "prompt_tokens": rows * 0 + 1000, "output_tokens": rows * 0 + 200}
    count = workload.model.counts()
    # 1,000 tokens take 1 s or 2 s, 200 steps of 5 ms per sequence 1 s; the second model has 4 GPUs at it.
    work_s = count[hosted[0].name] * (1 + 1) + count.get(hosted[1].name, 0) * 4 * (2 + 1)
    shared = gpu_load_share(hosted, Estimates((fast, slow), ""), workload, finished, 200.0)
    assert shared == pytest.approx(work_s / 200) and 0 < count[hosted[1].name] < 6
    assert gpu_load_share(hosted, Estimates((fast, slow), ""), workload, finished, 0.0) is None


@pytest.mark.parametrize(
    "words", [(), ("system=vllm_half", "trace.rate_per_s=30"), ("cluster=a100_x4", "model.tp=2")]
)
def test_of_a_static_system_it_is_the_finished_rate_over_the_capacity(words: tuple[str, ...]) -> None:
    prepared = prepare(simulated("trace=azure_conv_like", "trace.requests=200", *words))
    summary = execute(prepared).summary
    (speed,), workload, span_s = prepared.estimates.models, prepared.workload, summary["duration_s"]
    request_s = (
        workload.prompt_tokens.mean() / speed.prefill_tokens_per_s
        + workload.output_tokens.mean() * speed.decode_step_s / speed.decode_sequences
    )
    capacity_per_s = len(prepared.replicas) / request_s
    assert summary["gpu_load_share"] == pytest.approx(200 / span_s / capacity_per_s)
    assert summary["gpu_load_share"] < 0.9 * summary["gpu_busy_share"], "batches are far from full"


def test_of_an_elastic_system_it_is_over_what_instances_held() -> None:
    """Work is the same however many instances were there for it; the time that they held GPUs is not."""
    words = ("cluster=blitz_b", "trace=azure_code_like", "trace.rate_scale=4", "trace.limit=200")
    found = [
        execute(prepare(simulated(f"system={system}", "engine=blitz_native", *words))).summary
        for system in ("distserve_full", "blitz_multicast")
    ]
    held = [one["gpu_load_share"] * one["gpu_seconds"] for one in found]
    assert held[0] == pytest.approx(held[1])
    assert found[0]["gpu_seconds"] > found[1]["gpu_seconds"]
    assert found[0]["gpu_load_share"] < found[1]["gpu_load_share"] < 1


def test_a_real_run_does_not_know_what_full_batches_would_give(tmp_path: Path) -> None:
    metrics = RunMetrics()
    metrics.finished(request(0, 0), 2, 10 * MS, 20 * MS, 0, 0)
    metrics.gaps(10 * MS << 24, 0, 1, 1)
    metrics.busy(0, 20 * MS)
    summary = summarize(metrics, metrics.columns(), dropped={}, slo=SLO, gpus=1, instances=1)
    assert summary["gpu_load_share"] is None and summary["gpu_busy_share"] == 1
    named = dict(facts(summary))
    assert named["GPU busy"] == "100 %" and "GPU load" not in named
    both = SUMMARY | {"gpu_load_share": 0.0775, "gpu_busy_share": 0.9467}
    shown = "".join(page(tmp_path, columns(50), both).text.split())
    assert "GPUload7.75%" in shown and "GPUbusy94.67%" in shown
    assert "of what the GPUs could have served in full batches".replace(" ", "") in shown
