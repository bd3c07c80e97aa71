"""Notebooks: every script runs, and the .ipynb beside it is what it gives, without Jupyter."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import notebooks
from scripts.notebooks import NOTEBOOKS, ROOT, TIMED, Cell, built, cells_of, sources_of

SCRIPTS = sorted(NOTEBOOKS.glob("*.py"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SAID = {
    "first_run": "0 differ",
    "read_a_result": "missed the objective of their first token",
    "real_workers": " tokens checked, 0 differ",
    "reproduce_a_paper": "9 in band, 6 out",
    "size_a_cluster": "GPUs with the fastest",
    "write_a_policy": "SLO attainment +",
}
MOST_BYTES = 150_000
PNG = b"\x89PNG\r\n\x1a\n"


def committed(script: Path) -> str:
    return script.with_suffix(".ipynb").read_text("utf-8")


def outputs_of(notebook: str) -> list[list[dict[str, Any]]]:
    """Of every code cell."""
    return [cell["outputs"] for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]


def texts_of(notebook: str) -> list[str]:
    """What is printed and shown as text. Pictures are left out: another matplotlib draws other bytes."""
    every = [output for outputs in outputs_of(notebook) for output in outputs]
    return ["".join(one.get("text") or one["data"]["text/plain"]) for one in every]


@pytest.mark.parametrize(
    "script", [one for one in SCRIPTS if one.stem not in TIMED], ids=lambda one: one.stem
)
def test_a_script_gives_the_notebook_that_is_there(script: Path) -> None:
    again = f"write python -m scripts.notebooks {script.stem}"
    notebook = built(script)
    assert SAID[script.stem] in "\n".join(texts_of(notebook))
    assert texts_of(notebook) == texts_of(committed(script)), again


@pytest.mark.real
@pytest.mark.parametrize("name", TIMED)
def test_a_notebook_of_real_workers_runs_and_checks_its_tokens(name: str) -> None:
    pytest.importorskip(TIMED[name])
    assert SAID[name] in "\n".join(texts_of(built(NOTEBOOKS / f"{name}.py")))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.stem)
def test_a_notebook_has_the_cells_of_its_script_and_figures(script: Path) -> None:
    text = committed(script)
    assert sources_of(text) == cells_of(script.read_text("utf-8")), "write python -m scripts.notebooks"
    assert SAID[script.stem] in "\n".join(texts_of(text))
    last = outputs_of(text)[-1][-1]["data"]
    assert base64.b64decode(last["image/png"]).startswith(PNG)
    assert len(text.encode()) < MOST_BYTES
    assert not re.search(r"/tmp|/home|/root| at 0x", "\n".join(texts_of(text))), "another machine has others"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.stem)
def test_a_notebook_has_the_format_that_jupyter_and_jupytext_open(script: Path) -> None:
    assert script.read_text("utf-8").startswith("# ---\n# jupyter:")
    notebook = json.loads(committed(script))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", one, re.ASCII) for one in ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]


def test_every_tutorial_has_a_notebook_and_names_it() -> None:
    assert {path.stem for path in SCRIPTS} == {path.stem.lower() for path in TUTORIALS} == set(SAID)
    for page in TUTORIALS:
        assert f"(../../notebooks/{page.stem.lower()}.ipynb)" in page.read_text("utf-8")
    for page, way in {"README.md": "notebooks", "docs/how-to/PYTHON.md": "../../notebooks"}.items():
        text = (ROOT / page).read_text("utf-8")
        assert all(f"({way}/{script.stem}.ipynb)" in text for script in SCRIPTS), page


CELLS = """# ---
# jupyter:
# ---

# %% [markdown]
# # A title
#
# text

# %%
import matplotlib.pyplot as plt

print("said", __name__)
1 + 1

# %%
figure, axis = plt.subplots()
"""


def test_cells_show_what_is_printed_their_last_value_and_figures(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(CELLS)
    assert cells_of(CELLS)[0] == Cell("markdown", "# A title\n\ntext")
    notebook = built(script)
    assert notebook == built(script)
    assert sources_of(notebook) == cells_of(CELLS)
    assert texts_of(notebook) == ["said __main__\n", "2", "<Figure of 6.4 by 4.8 inches>"]


def test_a_notebook_of_real_workers_stays_until_its_script_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    script = tmp_path / "a" / "timed.py"
    monkeypatch.setattr(notebooks, "NOTEBOOKS", script.parent)
    monkeypatch.setattr(notebooks, "TIMED", {"timed": "json"})
    script.write_text("# %%\nprint(1)\n")
    assert notebooks.main([]) == notebooks.main(["timed"]) == 0
    assert capsys.readouterr().out == "a/timed.ipynb\n"
    script.write_text("# %%\nprint(2)\n")
    assert notebooks.main([]) == 0
    assert texts_of(committed(script)) == ["2\n"]
    monkeypatch.setattr(notebooks, "TIMED", {"timed": "a_package_that_is_missing"})
    script.write_text("# %%\nprint(3)\n")
    assert notebooks.main([]) == 0
    assert "is left as it is: a_package_that_is_missing is missing" in capsys.readouterr().out
    assert texts_of(committed(script)) == ["2\n"]


def test_a_cell_that_fails_is_told_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    (tmp_path / "a.py").write_text("# %%\nprint(1)\n\n# %%\n1 / 0\n")
    assert notebooks.main(["a"]) == 1
    told = capsys.readouterr().err
    assert "a.py: a cell failed" in told and '"<cell 2>", line 1' in told and "ZeroDivisionError" in told
    assert not (tmp_path / "a.ipynb").exists()


def test_a_name_that_is_no_notebook_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["first"]) == 2
    assert "there is no notebook first: write one of first_run, " in capsys.readouterr().err
