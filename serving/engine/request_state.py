"""Derives the state of a request on a replica from what the engine holds.

The state is not stored: the hot path needs the engine's containers, and a second record could contradict
them. For invariants, errors and tests.
"""

from enum import IntEnum

from serving.engine.engine import Engine


class RequestState(IntEnum):
    """The state of a request on a replica. ``ABSENT``: nothing is here; ``RESERVED``: only reserved blocks.

    A ``FINISHED`` request keeps its blocks for one step more (asynchronous scheduling). ``OUTGOING``: its
    prompt is computed, and it waits for its KV to be fetched or completed; ``ATTACHED``: its KV is here, and
    it decodes from the next pass on, or joined the run in progress.
    """

    ABSENT = 0
    WAITING = 1
    PREFILLING = 2
    DECODING = 3
    FINISHED = 4
    OUTGOING = 5
    ATTACHED = 6
    RESERVED = 7


def requests_at(engine: Engine) -> list[tuple[int, RequestState]]:
    """(request, state) of all that are attached or wait; a request in two containers appears twice."""
    prefilling, ended = engine.prefilling, engine.ended
    states = [
        (
            request,
            RequestState.PREFILLING
            if request in prefilling
            else RequestState.FINISHED
            if request in ended
            else RequestState.DECODING,
        )
        for request in engine.running
    ]
    states += [(progress.id, RequestState.WAITING) for progress in (*engine.waiting, *engine.unseen_arrivals)]
    states += [(progress.id, RequestState.OUTGOING) for progress in engine.outgoing]
    states += [(progress.id, RequestState.ATTACHED) for progress in engine.attached]
    return states
