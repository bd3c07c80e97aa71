"""Free memory in pieces: who is blocked, whether the pieces together would do, by hand and in a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments import cli
from experiments.results.fragmentation import shares_of

WORDS = (
    "cluster=llumnix_4x1", "model=llama_7b", "engine=vllm_0_1_7", "trace=llumnix_mm", "trace.requests=1500",
    "trace.rate_per_s=12", "series.period_s=1", "uncertainty=off",
)  # fmt: skip


def test_by_hand() -> None:
    # Two instances of 100 blocks: nobody blocked; 60 in pieces of 30 and 40; 80 that would not fit at all.
    heads = np.array([[20.0, 0.0], [60.0, 0.0], [80.0, 0.0], [50.0, 45.0]])
    free = np.array([[30.0, 40.0], [30.0, 40.0], [30.0, 40.0], [20.0, 40.0]])
    found = shares_of(heads, free, 200.0)
    assert found["blocked_share"] == 3 / 4
    assert found["fits_share"] == pytest.approx(2 / 3)
    assert found["mean_share"] == pytest.approx((60 + 45) / 200 / 4)
    assert found["max_share"] == pytest.approx(60 / 200)


def test_memory_that_nobody_waits_for_is_not_fragmented() -> None:
    found = shares_of(np.zeros((3, 2)), np.full((3, 2), 50.0), 200.0)
    assert found == {"blocked_share": 0.0, "fits_share": None, "mean_share": 0.0, "max_share": 0.0}


def test_a_crowded_run_tells_it_and_one_without_series_does_not(tmp_path: Path) -> None:
    assert cli.run(["simulate", "system=infaas_pp", *WORDS, f"out={tmp_path / 'a'}"]) == 0
    found = json.loads((tmp_path / "a" / "summary.json").read_text(encoding="utf-8"))["fragmentation"]
    assert 0 < found["blocked_share"] < 1 and found["fits_share"] > 0.5
    assert 0 < found["mean_share"] <= found["max_share"] < 1
    words = [word for word in WORDS if not word.startswith(("series", "trace.requests"))]
    few = [*words, "trace.requests=20", f"out={tmp_path / 'b'}"]
    assert cli.run(["simulate", "system=infaas_pp", *few]) == 0
    assert "fragmentation" not in json.loads((tmp_path / "b" / "summary.json").read_text(encoding="utf-8"))
