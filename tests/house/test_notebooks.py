"""Every notebook runs from top to bottom, in a folder of its own and with a fresh result to read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
SAID = {
    "read_a_run": "azure_conv_like on a100_x8",
    "first_run": "ttft_ms.p99:",
    "blitzscale_against_baselines": "9 points, 0 refused",
    "write_a_policy": "1000 finished",
    "read_a_journal": "0 differ",
    "plan_a_cluster": "GPUs with the fastest",
}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    if notebook.stem == "read_a_run":
        assert cli.run(["simulate", "trace=azure_conv_like", "trace.requests=40", f"out={out}"]) == 0
    environment = {**os.environ, "SERVETWIN_RESULT": str(out), "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, notebook],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * patience_s(),
    )
    assert done.returncode == 0, done.stderr
    assert SAID[notebook.stem] in done.stdout


def test_a_notebook_is_one_that_jupytext_opens() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SAID)
    assert all(path.read_text().startswith("# ---\n# jupyter:") for path in NOTEBOOKS)
