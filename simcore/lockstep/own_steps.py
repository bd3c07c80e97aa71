"""The cost of the next steps of one rank if it ran alone."""

from simcore.replica.machine import Machine


def own_steps(machine: Machine) -> tuple[int, int, int, int]:
    """(first, slope, steps), and the tokens of each."""
    run, tokens = machine.run, machine.decoding
    assert run is not None
    if not machine._head:
        return machine._first, machine._slope, machine._steps, tokens
    chunks = [chunk[2] for chunk in run.chunks]
    return machine._head, 0, 1, sum(chunks) + (tokens if run.decode else 0)
