"""Requests whose KV has come and who join decode steps in progress, without anybody reporting first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from serving.vocabulary.actions import Action, Adopt

if TYPE_CHECKING:
    from serving.engine.engine import Engine
    from serving.engine.progress import Progress


def join(engine: Engine, arrived: Sequence[Progress], actions: list[Action]) -> None:
    """They decode from the next boundary on; which one that is the next report tells."""
    engine.joining.append(arrived)
    ids = tuple([progress.id for progress in arrived])
    actions.append(Adopt(engine.id, ids, "their KV has come"))


def let_in(engine: Engine, actions: list[Action]) -> None:
    """Those who were adopted since the last pass decode with the others, as far as there are seats.

    An instance that turns to decoding may have computed more than it has seats for.
    """
    free = engine.seats - len(engine.running) + len(engine.ended)
    entering = engine.adopted[: max(0, free)]
    if not entering:
        return
    del engine.adopted[: len(entering)]
    for progress in entering:
        engine.running[progress.id] = progress
        engine.ledger.start_decoding(progress.id, progress.known_tokens + 1)
    ids = tuple([progress.id for progress in entering])
    actions.append(Adopt(engine.id, ids, "their KV has come"))


def joined(engine: Engine, joins: tuple[int, ...], steps: int) -> int:
    """They took part in some of these steps; returns how many were left when the last of them began to.

    joins: for each time that somebody was told to, steps before.
    """
    before, ledger = 0, engine.ledger
    for at, arrived in zip(joins, engine.joining, strict=True):
        assert before <= at <= steps, "a request joined outside the steps that are reported"
        ledger.steps_done += at - before
        before = at
        for progress in arrived:
            engine.adopted.remove(progress)
            engine.running[progress.id] = progress
            ledger.start_decoding(progress.id, progress.known_tokens + 1)
    engine.joining.clear()
    return steps - before
