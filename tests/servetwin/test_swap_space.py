"""``engine.preemption=swap`` through the product: blocks and times by the cluster's PCIe, what is told."""

import json
from pathlib import Path

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import prepare

WORDS = [
    "engine.preemption=swap", "system=infaas_pp", "model=llama_7b", "engine=vllm_0_1_7", "uncertainty=off",
    "engine.max_model_len=4096", "engine.kv_tokens=4000", "engine.max_new_tokens=1500", "journal=true",
    "trace=llumnix_mm", "trace.requests=60", "trace.rate_per_s=4",
]  # fmt: skip


def test_a_block_takes_its_bytes_over_pcie_and_four_gib_of_them_there_are() -> None:
    """LLaMA-7B has 512 KiB per token, so 8 MiB per block; PCIe 4.0 x16 of which 0.75 are reached."""
    words = [*WORDS, "out=unused"]
    (replica,) = prepare(load_config([*words, "cluster=llumnix_1x1"], "simulate")).replicas
    assert replica.swap_blocks == 512
    assert abs(replica.swap_block_ns - 8 * 2**20 / (32e9 * 0.75) * 1e9) < 1
    halves = [*WORDS, "cluster=llumnix_1x2", "model.tp=2", "out=unused"]
    (wide,) = prepare(
        load_config([one for one in halves if one != "cluster=llumnix_1x1"], "simulate")
    ).replicas
    assert wide.swap_blocks == 1024 and wide.swap_block_ns <= replica.swap_block_ns // 2 + 1


def test_a_run_tells_what_was_swapped_and_replays(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert cli.run(["simulate", *WORDS, "cluster=llumnix_1x1", f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["swaps"]["out"] == summary["preemptions"] > 0 and summary["swaps"]["host_full"] == 0
    assert summary["swaps"]["waited_s"] > 0 and summary["preemption_loss_ms"]["max"] > 0
    assert cli.run(["replay", str(out)]) == 0
    assert "preemption: swap" in (out / "config.yaml").read_text()
