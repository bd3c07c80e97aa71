"""docs/contributing/STATES.md, made from the tables that tests play against the code."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parents[1] / "docs" / "contributing" / "STATES.md"
_NOT_MACHINES = {"__init__", "__main__", "page"}
HEAD = """# State machines

The state machines of the control plane. Rows are states, columns are events; a cell has the actions or
effects of the event, if any, and the next state. "refused": the code raises; "-": the event cannot occur in
that state or changes nothing. Tests play every cell against the code, and `python -m tests.states` prints
this page from the tables that they play.
"""


def machines() -> list[ModuleType]:
    """The modules that hold a table, by title."""
    names = {path.stem for path in FOLDER.glob("*.py")} - _NOT_MACHINES
    modules = [import_module(f"tests.states.{name}") for name in names if not name.startswith("test_")]
    return sorted((module for module in modules if hasattr(module, "CELLS")), key=lambda one: one.TITLE)


def missing_cells(machine: ModuleType) -> list[tuple[str, str]]:
    """Pairs of state and event that have no cell, and cells of no such pair."""
    pairs = {(state, event) for state in machine.STATES for event in machine.EVENTS}
    return sorted(pairs.symmetric_difference(machine.CELLS))


def table(machine: ModuleType) -> str:
    """One machine's heading and table, states down and events across."""
    about = " ".join((machine.__doc__ or "").split())
    lines = [f"## {machine.TITLE}", "", f"{about} Code: `{machine.WHERE}`", ""]
    lines.append(f"| state | {' | '.join(machine.EVENTS)} |")
    lines.append("|---" * (len(machine.EVENTS) + 1) + "|")
    for state in machine.STATES:
        cells = [machine.CELLS[state, event] for event in machine.EVENTS]
        lines.append(f"| {state} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(f"{table(machine)}\n" for machine in machines())])
