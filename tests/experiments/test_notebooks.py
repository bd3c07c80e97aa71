"""The notebooks run from top to bottom, in a folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# One reads a result that `make run` leaves, and is run by it.
NOTEBOOKS = sorted(path for path in (ROOT / "notebooks").glob("*.py") if path.name != "read_a_run.py")
SAID = {
    "first_run": "ttft_ms.p99:",
    "blitzscale_against_baselines": "9 points, 0 refused",
    "write_a_policy": "1000 finished",
    "read_a_journal": "0 differ",
    "plan_a_cluster": "GPUs if steps are",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    assert path.read_text().startswith("# ---\n# jupyter:"), "jupytext opens it as a notebook"
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert SAID[path.stem] in done.stdout
