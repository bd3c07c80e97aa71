"""Lets a request go whose client went away: out of a queue at once, out of the batch at the next boundary.

A request in the batch is marked, and its run ends at the next step boundary. There, before the next pass is
chosen, it leaves with its KV. If it finishes in that step, it has finished.
"""

from collections import deque

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState, Leaver, Progress
from serving.vocabulary.abort import CLIENT_LEFT, AbortState
from serving.vocabulary.actions import Abort, Action, Interrupt

_IDLE, _RUNNING = EngineState.IDLE, EngineState.RUNNING


def is_here(engine: Engine, request: int) -> bool:
    """Whether the request is in a queue or the batch of this replica, or waits here with its KV."""
    if request in engine.running:
        return True
    held = (engine.waiting, engine.unseen_arrivals, engine.attached, engine.outgoing)
    return any(progress.id == request for part in held for progress in part)


def abort(engine: Engine, request: int, leaver: Leaver, actions: list[Action], *, later: bool) -> AbortState:
    """Let a request go that is on this replica.

    ``leaver`` is called when it has left. ``HELD``: its KV is outgoing, and not the engine's to drop.
    ``later``: see ``Interrupt``.
    """
    stop = Interrupt(engine.id, CLIENT_LEFT, 0, later)
    for queue in (engine.waiting, engine.unseen_arrivals):
        for place, progress in enumerate(queue):
            if progress.id == request:
                _leave_queue(engine, queue, place, leaver, actions)
                _look_again(engine, stop, actions)
                return AbortState.GONE
    joins = {progress.id for batch in engine.joining for progress in batch}
    if request in engine.running or request in joins:  # those who join are in the world's run
        engine.leaving[request] = leaver
        if engine.state in AT_WORK and engine.layer_pass is None:
            engine.cut_run(actions, stop)
        return AbortState.LEAVING
    for progress in engine.attached:
        if progress.id == request:
            engine.attached.remove(progress)
            engine.ledger.release(request)
            _gone(engine, progress, progress.known_tokens + 1, leaver, actions)
            _look_again(engine, stop, actions)
            return AbortState.GONE
    return AbortState.HELD


def _leave_queue(
    engine: Engine, queue: deque[Progress], place: int, leaver: Leaver, actions: list[Action]
) -> None:
    progress = queue[place]
    del queue[place]
    if progress.swapped:
        engine.host.forget(progress.id)
    _gone(engine, progress, progress.known_tokens if _has_begun(progress) else 0, leaver, actions)


def _gone(engine: Engine, progress: Progress, tokens: int, leaver: Leaver, actions: list[Action]) -> None:
    actions.append(Abort(progress.id, engine.id, tokens, CLIENT_LEFT))
    leaver(engine.id, progress)


def _look_again(engine: Engine, stop: Interrupt, actions: list[Action]) -> None:
    """Choose the next pass again: the present one was chosen with the request in the queue or in memory."""
    if engine.state is _RUNNING and engine.layer_pass is None:
        engine.cut_run(actions, stop)
    elif engine.state is _IDLE:
        engine.freed(actions)


def _has_begun(progress: Progress) -> bool:
    """Whether it waits to be computed once more."""
    return progress.was_preempted or progress.moved
