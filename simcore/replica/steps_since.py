"""How many steps replicas have run since their last reports, in the middle of coalesced runs."""

from collections.abc import Iterable

from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach


def steps_since(machines: Iterable[Machine], now_ns: int) -> tuple[tuple[int, int], ...]:
    """(replica, steps) of those with steps that ended before now and are not reported."""
    found = [(machine.id, _steps_before(machine, now_ns)) for machine in machines if machine.run is not None]
    return tuple([one for one in found if one[1]])


def _steps_before(machine: Machine, now_ns: int) -> int:
    booked = machine._joins.booked
    left = (now_ns << FRACTION_BITS) - machine._start_fixed - machine._head
    if left <= 0:
        return booked
    ended = int(machine._head > 0)
    if machine._steps:
        ended += steps_to_reach(machine._first, machine._slope, left) - 1
    return booked + ended
