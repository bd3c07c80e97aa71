"""Simulate measured serving runs as their clients loaded them, and print errors beside AIConfigurator's.

python -m benchmarks.silicon rows=FILE [out=FOLDER] [left_out=true] [page=true]

rows: a file in the form of AIConfigurator's table of measured runs. out: where results are kept, so that an
interrupted evaluation goes on (out/silicon if left out). left_out=true: judges each row with constants that
were fitted on the file's rows of other models or systems (minutes more). page=true, with left_out=true:
writes docs/explanation/SILICON.md and its lab note.
"""

from pathlib import Path
from typing import Final

from benchmarks.command import command
from benchmarks.silicon.left_out import left_out
from benchmarks.silicon.page import constants, lab_note, page, ranges, report
from benchmarks.silicon.rows import read_rows
from benchmarks.silicon.runs import simulated
from serving.vocabulary.errors import UserError

FOLDER: Final = Path("out") / "silicon"
DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "explanation" / "SILICON.md"
LAB_NOTE: Final = DOCS / "contributing" / "lab" / "SILICON.md"
_KEYS: Final = ("rows", "out", "left_out", "page")


def _given(words: list[str]) -> dict[str, str]:
    given = dict(word.split("=", 1) for word in words if "=" in word)
    for word in words:
        if word.partition("=")[0] not in _KEYS or "=" not in word:
            raise UserError(f"it takes {', '.join(f'{key}=...' for key in _KEYS)} and was given {word!r}")
    if not given.get("rows"):
        raise UserError("which rows: write rows=FILE, a table of measured runs")
    if given.get("page") == "true" and given.get("left_out") != "true":
        raise UserError("page=true writes errors of rows left out of the fit: write left_out=true too")
    return given


def main(words: list[str]) -> int:
    """Print the report, and write the page if asked."""
    given = _given(words)
    folder, path = Path(given.get("out", str(FOLDER))), Path(given["rows"])
    if not path.is_file():
        raise UserError(f"rows={path} is no file: write the path of a table of measured runs")
    rows = list(read_rows(path))
    results = simulated(rows, folder)
    of_vllm = [result for result in results if result.row.backend == "vllm"]
    lines = [*report("All rows", results), "", *report("Rows of vLLM", of_vllm)]
    own = None
    if given.get("left_out") == "true":
        own = left_out([result.row for result in of_vllm], of_vllm, folder)
        title = "Rows of vLLM, constants fitted without their model on their system"
        lines = [*report(title, own.results), "", *ranges(own.results), "", *lines, "", *constants(own)]
    text = "\n".join(lines)
    print(text)
    if own and given.get("page") == "true":
        PAGE.write_text(page(own), encoding="utf-8")
        LAB_NOTE.write_text(lab_note(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    command("benchmarks.silicon", __doc__, main)
