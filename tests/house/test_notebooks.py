"""Every notebook runs from top to bottom, in a folder of its own and with a fresh result to read."""

import runpy
from pathlib import Path

import pytest

from servetwin.cli import main as cli

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
def test_notebook_runs(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    if notebook.stem == "read_a_run":
        assert cli.run(["simulate", "trace=azure_conv_like", "trace.requests=40", f"out={out}"]) == 0
    for name, value in {"SERVETWIN_RESULT": str(out), "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(notebook), run_name="__main__")
    assert SAID[notebook.stem] in capsys.readouterr().out


def test_a_notebook_is_one_that_jupytext_opens() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SAID)
    assert all(path.read_text().startswith("# ---\n# jupyter:") for path in NOTEBOOKS)
