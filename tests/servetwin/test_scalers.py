"""Scalers that read metrics as monitoring has them, through whole runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli

SCALERS = (
    "hpa", "keda", "kpa", "apa", "token_velocity", "tokenscale", "heteroscale", "wva_v1", "wva_v2",
    "dynamo_throughput", "dynamo_load",
)  # fmt: skip
WORDS = (
    "system=serverlessllm", "cluster=blitz_b", "trace=burstgpt_like", "trace.base_rate_per_s=12",
    "trace.requests=700", "uncertainty=off", "system.signals.delay_s=1", "journal=true",
)  # fmt: skip
BOTH = "system.instances.split=false"


def run_into(folder: Path, *words: str) -> dict[str, Any]:
    """The summary without what the run cost."""
    assert cli.run(["simulate", *WORDS, *words, f"out={folder}"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    del summary["sim"]
    summary.get("decisions", {}).pop("cpu_ms_p99", None)
    return summary


@pytest.mark.parametrize("split", ["system.instances.split=true", BOTH])
@pytest.mark.parametrize("scaler", SCALERS)
def test_late_metrics_are_the_same_step_by_step_and_in_replay(
    tmp_path: Path, scaler: str, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (f"system/scaler={scaler}", split)
    coalesced = run_into(tmp_path / "coalesced", *words)
    exact = run_into(tmp_path / "exact", *words, "engine.exact=true")
    assert coalesced == exact
    files = [(tmp_path / name / "requests.parquet").read_bytes() for name in ("coalesced", "exact")]
    assert files[0] == files[1]
    assert cli.run(["replay", str(tmp_path / "coalesced")]) == 0
    assert "0 differ" in capsys.readouterr().out
