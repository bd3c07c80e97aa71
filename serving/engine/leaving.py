"""Requests that leave a replica before they are done: preempted ones, and everybody when it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.vocabulary.actions import Action, Preempt

if TYPE_CHECKING:
    from serving.engine.engine import Engine


def preempt(engine: Engine, victims: tuple[int, ...], actions: list[Action]) -> None:
    """Drop the victims' KV and put them at the head of the queue, so that the oldest comes first."""
    ledger = engine.ledger
    for request in victims:
        progress = engine.running.pop(request)
        if request in engine.ended:
            engine.ended.remove(request)
            ledger.release(request)
            continue
        stored = progress.computed
        if engine.prefilling.pop(request, None) is None:
            context = ledger.context_tokens(request)
            # vLLM hashes the last position only when its step's output is known (async_scheduler.py).
            stored = max(progress.known_tokens, context - 1 - engine.asynchronous)
            progress.known_tokens = context
        progress.computed = 0
        progress.comes_back = True
        ledger.preempt(request, stored)
        engine.waiting.appendleft(progress)
        engine.preemptions += 1
        actions.append(Preempt(engine.id, request, "no free KV block"))


def withdraw(engine: Engine) -> list[int]:
    """Who waits and has not begun here, from the head of the queue, is taken back."""
    gone = list[int]()
    for queue in (engine.waiting, engine.door):
        waiting = tuple(queue)
        queue.clear()
        for progress in waiting:
            if progress.comes_back:
                queue.append(progress)
            else:
                gone.append(progress.id)
    return gone


def everybody_leaves(engine: Engine) -> list[int]:
    """All requests of a replica that is gone, ascending; it has none any more."""
    others = (*engine.waiting, *engine.door, *engine.outgoing, *engine.adopted)
    gone = sorted([*engine.running, *(progress.id for progress in others)])
    for request in gone:
        engine.ledger.release(request)
    for progress in engine.waiting:
        engine.ledger.forget(progress.id)
    for held in (engine.running, engine.prefilling, engine.waiting, engine.door):
        held.clear()
    engine.outgoing.clear()
    engine.adopted.clear()
    return gone
