"""The controller knows no state machine by its kind; ``serving.composition`` knows them all."""

import ast
import inspect
from pathlib import Path
from typing import get_args

import pytest

from serving.controller import Controller
from serving.vocabulary.events import Arrived, Event, Ran, Woke
from tests.worlds.elastic_world import Setting

ROOT = Path(__file__).resolve().parents[2]
CONTROLLER = ast.parse((ROOT / "serving" / "controller.py").read_text(encoding="utf-8"))
# Beside the vocabulary: the books, and what is asked of the machines.
KNOWN = {
    "serving.elastic.replica_control", "serving.engine.engine", "serving.engine.progress",
    "serving.protocols.policy_faults", "serving.services.service",
}  # fmt: skip


def test_the_controller_imports_no_feature() -> None:
    modules = {node.module or "" for node in ast.walk(CONTROLLER) if isinstance(node, ast.ImportFrom)}
    assert {one for one in modules if not one.startswith("serving.vocabulary.")} == KNOWN


def test_the_controller_asks_nobody_which_kind_it_is_or_whether_it_is_there() -> None:
    """But for a service that is unknown, and a refusal that is none."""
    kinds = [node.lineno for node in ast.walk(CONTROLLER)
             if isinstance(node, ast.Name) and node.id in ("isinstance", "getattr", "hasattr")]  # fmt: skip
    absent = {
        ast.unparse(node)
        for node in ast.walk(CONTROLLER)
        if isinstance(node, ast.Compare) and "None" in map(ast.unparse, node.comparators)
    }
    assert (kinds, absent) == ([], {"service is None", "refusal is not None", "source is not None"})


def test_the_controller_is_handed_its_parts() -> None:
    assert len(inspect.signature(Controller).parameters) <= 6


@pytest.mark.parametrize("elastic", [False, True])
def test_every_event_has_one_who_handles_it(elastic: bool) -> None:
    """Those that come most often by a branch, the others by the table."""
    controller = Setting(elastic=elastic).controller()
    assert {*controller._handlers, Ran, Arrived} == set(get_args(Event))


def test_a_system_that_does_not_scale_is_never_woken() -> None:
    with pytest.raises(AssertionError, match="no service asked for a wake-up"):
        Setting(elastic=False).controller().handle(0, Woke())


SERVING = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "serving").rglob("*.py")}
# What the standard library makes classes of, and errors.
BASES = {
    "AssertionError",
    "Exception",
    "IntEnum",
    "NamedTuple",
    "Protocol",
    "TypedDict",
    "UserError",
    "ValueError",
}


# To all who hold one they are an engine, a ledger and a fleet; to ask which it is would cost the others.
DERIVED = {
    "pipelined.py: PipelinedEngine(Engine)",
    "pipelined.py: MicroBatchLedger(KvLedger)",
    "views.py: StockFleet(Fleet)",
    "virtual_engines.py: VirtualEngines(Engine)",
    "virtual_engines.py: VirtualLedger(KvLedger)",
    "replica_control.py: ReplicaControl(ReplicaOutlook)",  # of protocols
    "provisioning.py: FreeSlots(Sequence[GpuSlot])",  # policies read it as any sequence of slots
    "offered_slots.py: OfferedSlots(FreeSlots)",
}


def test_no_class_of_serving_is_derived_from_another() -> None:
    """What two have in common is a part of both; where they differ, each hands in its own."""
    found = {
        f"{path.name}: {node.name}({ast.unparse(base)})"
        for path, tree in SERVING.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).partition("[")[0] not in BASES
    }
    assert found == DERIVED


def test_actions_are_handed_on_and_never_kept() -> None:
    """An attribute would have to be set by whoever handles the event first."""
    kept = [
        f"{path.name}:{node.lineno}"
        for path, tree in SERVING.items()
        if path.parent.name != "record"  # where they are counted
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.strip("_") == "actions"
        and isinstance(node.value, ast.Name) and node.value.id == "self"
    ]  # fmt: skip
    assert kept == []
