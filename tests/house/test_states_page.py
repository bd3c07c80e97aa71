"""Tables of state machines are whole, are played by a test and stands in docs/contributing/STATES.md."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.states.page import FOLDER, PAGE, machines, missing_cells, page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_printed_from_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.states"


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.TITLE)
def test_a_table_is_whole(machine: ModuleType) -> None:
    assert missing_cells(machine) == []
    assert all(text.strip() and "|" not in text for text in machine.CELLS.values())
    assert (ROOT / machine.WHERE).is_file()
    name = machine.__name__.rpartition(".")[2]
    assert (FOLDER / f"test_{name}.py").is_file(), "a test plays every cell"
