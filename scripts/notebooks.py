"""The scripts of notebooks/ as .ipynb files with their outputs: ``python -m scripts.notebooks`` (make docs).

``python -m scripts.notebooks NAME ...`` builds these only. Neither this nor the tests need Jupyter.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
NOTEBOOKS: Final = ROOT / "notebooks"
# Notebooks of real workers: the package without which they cannot run. Their times differ from run to run, so
# a built one stays until its script changes.
TIMED: Final = {"real_workers": "torch"}
_CELL: Final = "# %%"
_MARKDOWN: Final = "# %% [markdown]"
_COLUMNS: Final = "110"  # of tables that commands print


class NotebookError(Exception):
    """A cell failed; its traceback."""


@dataclass(frozen=True, slots=True)
class Cell:
    """kind: ``markdown`` or ``code``, as the format of notebooks names them."""

    kind: str
    source: str


def cells_of(script: str) -> list[Cell]:
    """Return the cells of a script in percent format; what is above the first one is jupytext's header."""
    cells: list[tuple[str, list[str]]] = []
    for line in script.splitlines():
        if line.startswith(_CELL):
            cells.append(("markdown" if line.startswith(_MARKDOWN) else "code", []))
        elif cells:
            kind, lines = cells[-1]
            lines.append(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line)
    return [Cell(kind, "\n".join(lines).strip("\n")) for kind, lines in cells]


def built(script: Path) -> str:
    """Run the script's cells in a process and a folder of their own; the notebook as JSON. NotebookError."""
    notebook = {
        "cells": _cells_with_outputs(cells_of(script.read_text("utf-8"))),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def sources_of(notebook: str) -> list[Cell]:
    """Return the cells of a notebook, without outputs."""
    return [Cell(one["cell_type"], "".join(one["source"])) for one in json.loads(notebook)["cells"]]


def _cells_with_outputs(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    outputs = iter(_executed([cell.source for cell in cells if cell.kind == "code"]))
    count, written = 0, []
    for place, cell in enumerate(cells):
        one = {"cell_type": cell.kind, "id": f"cell-{place}", "metadata": {}}
        one["source"] = cell.source.splitlines(keepends=True)
        if cell.kind == "code":
            count += 1
            one |= {"execution_count": count, "outputs": next(outputs)}
        written.append(one)
    return written


def _executed(sources: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Outputs of each cell. A fresh process: what one notebook leaves behind does not reach the next."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": _COLUMNS, "MPLBACKEND": "Agg"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as between:
        cells, outputs = Path(between) / "cells.json", Path(between) / "outputs.json"
        cells.write_text(json.dumps(sources), "utf-8")
        words = [sys.executable, "-m", "scripts.notebook_outputs", str(cells), str(outputs)]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise NotebookError(done.stderr)
        found: list[list[dict[str, Any]]] = json.loads(outputs.read_text("utf-8"))
        return found


def _is_built(script: Path) -> bool:
    """Whether a notebook of real workers is there already with the cells of its script."""
    target = script.with_suffix(".ipynb")
    return target.is_file() and sources_of(target.read_text("utf-8")) == cells_of(script.read_text("utf-8"))


def main(names: Sequence[str]) -> int:
    """Build the notebooks of these names, or all; exit status 2 for an unknown name, 1 if a cell fails."""
    scripts = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.py"))}
    if unknown := [name for name in names if name not in scripts]:
        print(f"there is no notebook {unknown[0]}: write one of {', '.join(scripts)}", file=sys.stderr)
        return 2
    for name in names or scripts:
        if name in TIMED and _is_built(scripts[name]):
            continue
        if name in TIMED and find_spec(TIMED[name]) is None:
            print(f"notebooks/{name}.ipynb is left as it is: {TIMED[name]} is missing (make test-real)")
            continue
        target = scripts[name].with_suffix(".ipynb")
        try:
            target.write_text(built(scripts[name]), "utf-8")
        except NotebookError as failed:
            print(f"{scripts[name]}: a cell failed\n{failed}", file=sys.stderr)
            return 1
        print(target.relative_to(NOTEBOOKS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
