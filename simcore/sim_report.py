"""The report of a run in virtual time."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine


@dataclass(frozen=True, slots=True)
class SimReport:
    """Measured by the event loop: events handled, looks of the load monitor, CPU time of some looks.

    ``stopped``: why the run ended before its last request (``simcore.stopping``); empty if it did not.
    """

    events: int
    looks: int
    decisions_ns: "array[int]"
    stopped: str = ""


def losses_by_request_ns(machines: Iterable[Machine]) -> dict[int, int]:
    """By request, the total time from each of its preemptions until it was computed again."""
    losses_ns: dict[int, int] = {}
    for machine in machines:
        for request, loss_fixed in machine.preemption_losses:
            losses_ns[request] = losses_ns.get(request, 0) + (loss_fixed >> FRACTION_BITS)
    return losses_ns
