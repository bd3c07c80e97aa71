"""Engines are asked for KV blocks by the books of moves and pieces alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("kv", "live", "services", "elastic", "record")
VERBS = ("reserve", "release")
PLACES = {"serving/kv/moves.py", "serving/kv/path_kv.py", "serving/kv/pieces.py"}
# These have verbs of the same names, and end there.
OTHERS = ("pieces", "moves")


def calls_in(source: str) -> Iterator[tuple[int, str]]:
    """(line, verb) of each verb asked of anything that is neither the book of pieces, moves nor itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in VERBS:
            receiver = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
            if receiver not in (*OTHERS, "self"):
                yield node.lineno, ast.unparse(node)


def test_moves_and_pieces_alone_ask_engines_for_blocks() -> None:
    paths = [path for room in ROOMS for path in sorted((ROOT / "serving" / room).rglob("*.py"))]
    paths.append(ROOT / "serving" / "controller.py")
    found = {
        path.relative_to(ROOT).as_posix(): list(calls_in(path.read_text(encoding="utf-8"))) for path in paths
    }
    asking = {name: calls for name, calls in found.items() if calls}
    assert asking.keys() == PLACES
    assert all(len(calls) == 2 for calls in asking.values())


@pytest.mark.parametrize(
    "line",
    [
        "engine.release(gone)",
        "self._engines[replica].reserve(request, 8)",
        "free = target.release",
        "engine.ledger.release(request)",
    ],
)
def test_each_way_to_ask_an_engine_is_seen(line: str) -> None:
    assert len(list(calls_in(line))) == 1


def test_who_asks_the_book_is_not_meant() -> None:
    assert list(calls_in("self._pieces.release(engine, gone); moves.reserve(a, b, c); self.release(x)")) == []
