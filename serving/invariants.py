"""What must hold after every event (docs/INVARIANTS.md carries the numbers used here)."""

from serving.controller import Controller
from serving.engine import Engine, EngineState


class InvariantError(AssertionError):
    """An invariant does not hold; the message begins with its number."""


def check(controller: Controller) -> None:
    """Check every invariant the control plane can see by itself. O(requests in flight)."""
    in_flight = len(controller.requests)
    ended = controller.finished + controller.rejected + controller.failed
    sentence = f"requests conserved: {controller.arrived} arrived, {ended} ended, {in_flight} in flight"
    _demand(1, controller.arrived == ended + in_flight, sentence)
    held = 0
    for engine in controller.engines:
        _check_engine(engine)
        held += len(engine.running) - len(engine.ended) + len(engine.waiting) + len(engine.door)
    _demand(1, held == in_flight, f"requests conserved: replicas hold {held} of {in_flight}")


def _check_engine(engine: Engine) -> None:
    ledger, replica = engine.ledger, engine.replica
    held = sum(ledger.held_blocks(request) for request in ledger.holders())
    total = ledger.total_blocks
    _demand(2, 0 <= ledger.free_blocks <= total, f"free KV blocks {ledger.free_blocks} of {total}")
    _demand(2, held + ledger.free_blocks == total, f"KV blocks conserved on replica {replica.id}")
    _demand(2, set(ledger.holders()) <= set(engine.running), "only admitted requests hold KV blocks")
    _demand(2, engine.prefilling.keys() <= engine.running.keys(), "a prompt in progress is admitted")
    decoding = len(engine.running) - len(engine.prefilling) - len(engine.ended)
    _demand(2, ledger.decoding == decoding, "decoding set counted")
    order = [*engine.running, *(progress.id for progress in (*engine.waiting, *engine.door))]
    _demand(1, len(order) == len(set(order)), "no request is on a replica twice")
    loading = engine.state is EngineState.LOADING
    _demand(3, not (loading and engine.running), f"replica {replica.id} runs before its layers are loaded")
    idle = engine.state in (EngineState.IDLE, EngineState.LOST)
    _demand(10, not (idle and order), f"work conservation: replica {replica.id} idles with requests")
    for progress in engine.prefilling.values():
        computed, known = progress.computed, progress.known_tokens
        _demand(4, 0 <= computed < known, "prompt positions are computed in order, once")


def _demand(number: int, holds: bool, sentence: str) -> None:
    if not holds:
        raise InvariantError(f"invariant {number}: {sentence}")
