"""What Jupyter would show of each cell: ``python -m scripts.notebook_outputs CELLS.json OUTPUTS.json``.

Cells run in the current folder, one after the other, in one namespace that is ``__main__``.
"""

import ast
import base64
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_DPI: Final = 96
_COLORS: Final = 64  # enough for lines and text: a third of the bytes of full colour


def main(cells: str, outputs: str) -> None:
    """Run a list of sources; write a list of outputs for each."""
    sources = json.loads(Path(cells).read_text("utf-8"))
    sys.modules["__main__"] = notebook = ModuleType("__main__")
    shown = [_outputs(source, vars(notebook), count) for count, source in enumerate(sources, 1)]
    Path(outputs).write_text(json.dumps(shown), "utf-8")


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, the value of its last line, and the figures that it leaves open."""
    from matplotlib import pyplot

    printed = io.StringIO()
    with redirect_stdout(printed):
        value = _value(source, names, f"<cell {count}>")
    outputs: list[dict[str, Any]] = []
    # Where a command names its folder in full: what others would not have.
    if text := printed.getvalue().replace(f"{Path.cwd()}{os.sep}", ""):
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(text)})
    if value is not None:
        shown = {"output_type": "execute_result", "execution_count": count}
        outputs.append({**shown, "data": _shown(value), "metadata": {}})
    for number in pyplot.get_fignums():
        data = _shown(pyplot.figure(number))
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    return outputs


def _value(source: str, names: dict[str, Any], file: str) -> Any:
    """Execute a cell; the value of its last statement if that is an expression."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    return eval(compile(ast.Expression(last.value), file, "eval"), names) if last else None


def _shown(value: Any) -> dict[str, Any]:
    """A value by media type: a figure as a picture, a table as HTML too."""
    from matplotlib.figure import Figure

    if isinstance(value, Figure):
        width, height = value.get_size_inches()
        return {"image/png": _png(value), "text/plain": [f"<Figure of {width:g} by {height:g} inches>"]}
    html = {"text/html": _lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {}
    return {**html, "text/plain": _lines(repr(value))}


def _png(figure: Any) -> str:
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI, bbox_inches="tight")
    Image.open(drawn).convert("RGB").quantize(_COLORS).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode("ascii") + "\n"


def _lines(text: str) -> list[str]:
    """Lines without the spaces that pad them."""
    return [line.rstrip() + "\n" * line.endswith("\n") for line in text.splitlines(keepends=True)]


if __name__ == "__main__":
    main(*sys.argv[1:])
