"""KV copies between GPU and host memory between a machine's passes: the next pass begins after the copy."""

from serving.vocabulary.actions import JoinBatch
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine


def wait_for_copy(machine: Machine, now_ns: int, takes_ns: int) -> None:
    """Run nothing during the copy; resident requests wait for their next token since the last boundary."""
    assert machine.run is None, "KV is swapped between two passes"
    if machine._busy_since_ns < 0:
        machine._busy_since_ns = now_ns
        machine._start_fixed = now_ns << FRACTION_BITS
    if machine._decoding and not machine._delayed_groups:
        machine._delayed_groups.append([machine._due_fixed, machine._decoding])
    machine._start_fixed += takes_ns << FRACTION_BITS


def join(machine: Machine, now_ns: int, action: JoinBatch) -> bool:
    """``Machine.join_batch`` for requests that return from host memory, once they are copied."""
    if action.swap_ns:
        wait_for_copy(machine, now_ns, action.swap_ns)
        for request in action.requests:
            life = machine._lives[request]
            if life.preempted_fixed >= 0:  # the end of its preemption
                machine.preemption_losses.append((request, machine._start_fixed - life.preempted_fixed))
                life.preempted_fixed = -1
    return machine.join_batch(now_ns, action.requests)
