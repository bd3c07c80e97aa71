"""What others change in an engine's batch between two steps: requests that decode leave it and come back.

Verbs of an engine that only migration needs (``serving.kv.migration``). A coalesced run goes on without
reports, so its engine is made to halt first: then every step is reported, and the next pass is chosen only
when ``go_on`` says so.
"""

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, GONE, Progress
from serving.engine.waiting import queue_first
from serving.vocabulary.actions import Action, Detach, Interrupt


def halt(engine: Engine, reason: str, actions: list[Action], later: bool = False) -> None:
    """The run in progress ends at its next boundary; from there on every step is reported, and waits.

    later: see ``Interrupt``.
    """
    engine.halts = True
    engine.coalesce = False
    if engine.state in AT_WORK:
        engine.cut_run(actions, Interrupt(engine.id, reason, 0, later))


def let_run(engine: Engine, coalesce: bool) -> None:
    """No more; ``coalesce``: what it was before."""
    engine.halts = False
    engine.coalesce = coalesce


def go_on(engine: Engine, actions: list[Action]) -> None:
    """The pass that a report has left to be chosen is chosen."""
    engine._start_pass(actions)


def enter(engine: Engine, actions: list[Action]) -> None:
    """Who has come with its KV is of the batch, as in a coalesced run, which such requests join."""
    if engine.attached:
        engine._start_attached(actions)


def look_again(engine: Engine, reason: str, actions: list[Action], later: bool = False) -> None:
    """Memory or requests have changed: that counts from the next boundary on, at once if nothing runs.

    later: see ``Interrupt``.
    """
    if engine.state in AT_WORK:
        engine.cut_run(actions, Interrupt(engine.id, reason, 0, later))
    else:
        engine.freed(actions)


def pause(engine: Engine, request: int, reason: str, actions: list[Action]) -> Progress:
    """At a boundary a request that decodes leaves the batch, and is outgoing with its KV.

    The KV of its last token is not there: the step that it feeds computes it, here or elsewhere.
    """
    progress = engine.running.pop(request)
    progress.known_tokens = progress.computed = engine.ledger.context_tokens(request) - 1
    engine.ledger.retire(request)
    engine.outgoing.append(progress)
    actions.append(Detach(engine.id, request, reason))
    return progress


def resume(engine: Engine, progress: Progress) -> None:
    """A paused request goes on here, from the next pass on."""
    engine.detach((progress,), keeps_kv=True)
    engine.attach((progress,))


def requeue(engine: Engine, progress: Progress) -> None:
    """A paused request that came without its KV is computed again, before those that wait here."""
    assert engine.state not in GONE, "a request was given to a lost or vacant replica"
    progress.known_tokens += 1
    progress.computed = 0
    progress.was_preempted, progress.moved = False, True
    queue_first(engine.waiting, progress)
