"""The state of one request on one replica."""

from serving.engine.engine import Engine
from serving.engine.request_state import RequestState, requests_at


def state_of(engine: Engine, request: int) -> RequestState:
    """The state of this request on the replica."""
    for number, state in requests_at(engine):
        if number == request:
            return state
    return RequestState.RESERVED if request in engine.ledger.holders() else RequestState.ABSENT
