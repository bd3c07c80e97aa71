"""Changes to an engine's batch between two steps: decoding requests leave it and return.

Only migration (``serving.kv.migration``) uses these operations. A coalesced run continues without reports, so
its engine is first made to halt: then every step is reported, and ``go_on`` chooses the next pass.
"""

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, GONE, Progress
from serving.engine.waiting import queue_first
from serving.vocabulary.actions import Action, Detach, Interrupt


def halt(engine: Engine, reason: str, actions: list[Action], later: bool = False) -> None:
    """End the current run at its next boundary; from there on every step is reported and the engine waits.

    later: see ``Interrupt``.
    """
    engine.halts = True
    engine.coalesce = False
    if engine.state in AT_WORK:
        engine.cut_run(actions, Interrupt(engine.id, reason, 0, later))


def let_run(engine: Engine, coalesce: bool) -> None:
    """End halting; ``coalesce``: the value before ``halt``."""
    engine.halts = False
    engine.coalesce = coalesce


def go_on(engine: Engine, actions: list[Action]) -> None:
    """Choose the pass that was not chosen after the last report."""
    engine._start_pass(actions)


def enter(engine: Engine, actions: list[Action]) -> None:
    """Let requests that arrived with their KV join the batch, as they would join a coalesced run."""
    if engine.attached:
        engine._start_attached(actions)


def look_again(engine: Engine, reason: str, actions: list[Action], later: bool = False) -> None:
    """Consider changed memory or requests from the next boundary on, or at once if nothing runs.

    later: see ``Interrupt``.
    """
    if engine.state in AT_WORK:
        engine.cut_run(actions, Interrupt(engine.id, reason, 0, later))
    else:
        engine.freed(actions)


def pause(engine: Engine, request: int, reason: str, actions: list[Action]) -> Progress:
    """Remove a decoding request from the batch at a boundary; it is outgoing with its KV.

    The KV of its last token is not there: the step that it feeds computes it, here or elsewhere.
    """
    progress = engine.running.pop(request)
    progress.known_tokens = progress.computed = engine.ledger.context_tokens(request) - 1
    engine.ledger.retire(request)
    engine.outgoing.append(progress)
    actions.append(Detach(engine.id, request, reason))
    return progress


def resume(engine: Engine, progress: Progress) -> None:
    """Let a paused request continue here, from the next pass on."""
    engine.detach((progress,), keeps_kv=True)
    engine.attach((progress,))


def requeue(engine: Engine, progress: Progress) -> None:
    """Queue a paused request that came without its KV before those that wait; it is recomputed."""
    assert engine.state not in GONE, "a request was given to a lost or vacant replica"
    progress.known_tokens += 1
    progress.computed = 0
    progress.was_preempted, progress.moved = False, True
    queue_first(engine.waiting, progress)
