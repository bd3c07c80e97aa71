"""A pass over some layers of prompts that are not the engine's own: what live scaling runs on it.

It waits for the run in progress to end at its next boundary, goes before anything else, and may run on an
engine that is still loading. The engine's queue and running set know nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.engine.progress import EngineState
from serving.vocabulary.actions import Action, Chunk, Run

if TYPE_CHECKING:
    from serving.engine.engine import Engine

_LOADING, _IDLE, _RUNNING = EngineState.LOADING, EngineState.IDLE, EngineState.RUNNING


class LayerPass:
    """Layers [first, last) of whole prompts."""

    __slots__ = ("begun", "chunks", "layers", "reason")

    def __init__(self, chunks: tuple[Chunk, ...], layers: tuple[int, int], reason: str) -> None:
        self.chunks = chunks
        self.layers = layers
        self.reason = reason
        self.begun = False


def lay(engine: Engine, one: LayerPass, actions: list[Action]) -> None:
    """Run this next, at once if nothing runs."""
    assert engine.aside is None, f"replica {engine.id} has a pass over some layers already"
    engine.aside = one
    if engine.state in (_IDLE, _LOADING):
        begin(engine, actions)
    elif engine.state is _RUNNING:
        engine.cut_run(actions)


def begin(engine: Engine, actions: list[Action]) -> None:
    """Nothing runs: the pass that was asked for begins."""
    one = engine.aside
    assert one is not None and not one.begun
    one.begun = True
    if engine.state is not _LOADING:
        engine.state = _RUNNING
    actions.append(Run(engine.id, engine.epoch, one.chunks, False, 1, True, one.reason, True, one.layers))


def ended(engine: Engine) -> None:
    """The pass has been run: the engine is idle until somebody gives it work or it is ``freed``."""
    assert engine.aside is not None and engine.aside.begun, "a replica reports layers that nobody asked for"
    engine.aside = None
    if engine.state is not _LOADING:
        engine.state = _IDLE
