"""Every notebook runs on a fresh result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import cli
from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert cli.run(["simulate", "trace=azure_conv_like", "trace.requests=40", f"out={out}"]) == 0
    environment = {**os.environ, "SERVETWIN_RESULT": str(out), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, notebook], env=environment, capture_output=True, text=True, timeout=patience_s()
    )
    assert done.returncode == 0, done.stderr
    assert "azure_conv_like on a100_x8" in done.stdout
