"""A replica cut by ``model.pp`` is lost: its requests fail, others go on, coalesced as step by step."""

import json
from pathlib import Path

import pytest

from servetwin.cli import main as cli

WORDS = (
    "model.pp=2",
    "cluster=blitz_a_1x4",
    "trace=azure_conv_like",
    "trace.requests=60",
    "trace.rate_per_s=8",
    "uncertainty=off",
    "journal=true",
)


@pytest.mark.parametrize(("at_s", "engine"), [(2.5, "vllm_v1"), (5, "vllm_v1"), (2.5, "vllm_v0")])
def test_a_lost_replica_of_stages_takes_its_requests_with_it(
    at_s: float, engine: str, tmp_path: Path
) -> None:
    files = []
    for exact in ("false", "true"):
        out = tmp_path / exact
        lost = [
            f"engine={engine}",
            "faults=one_replica",
            f"faults.at_s={at_s}",
            "faults.replica=0",
            f"engine.exact={exact}",
        ]
        assert cli.run(["simulate", *WORDS, *lost, f"out={out}"]) == 0
        assert cli.run(["replay", str(out)]) == 0
        files.append((out / "requests.parquet").read_bytes())
    summary = json.loads((out / "summary.json").read_text())
    requests = summary["requests"]
    assert requests["failed"] > 0 and requests["finished"] + requests["failed"] == 60
    assert list(summary["failed_reasons"]) == ["replica 0 failed"]
    assert files[0] == files[1]
