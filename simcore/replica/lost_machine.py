"""The end of a machine with its replica: steps that have ended by then count, those in progress do not."""

from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach


def lose(machine: Machine, now_ns: int) -> None:
    """Lose the machine with all it holds.

    No report will come of its run. Its steps that have ended by now gave tokens, whose gaps are booked.
    """
    if machine.run is not None:
        _book_ended(machine, now_ns)
    machine.run = None
    if machine._busy_since_ns >= 0:
        machine.busy_ns += now_ns - machine._busy_since_ns
        machine._busy_since_ns = -1
    for _, request in machine._ends:
        machine._lives[request].end = -1


def _book_ended(machine: Machine, now_ns: int) -> None:
    until_fixed = (now_ns + 1) << FRACTION_BITS  # a step that ends at this nanosecond has ended
    if machine._start_fixed >= until_fixed:  # booked up to a boundary that never comes
        machine._joins.late.clear()
        return
    ended = until_fixed - machine._start_fixed - machine._head
    if ended <= 0:
        return
    steps = min(machine._steps, steps_to_reach(machine._first, machine._slope, ended) - 1)
    machine._steps = machine._left = steps
    machine._fix_due()
    assert not machine.complete().finished, "a request ended without a report"
