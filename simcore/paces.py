"""Replicas whose steps take longer while KV of a running request is copied from or to them."""

from collections.abc import Mapping
from math import inf
from typing import Final

from serving.vocabulary.actions import Send
from serving.vocabulary.events import Closing, Event, Lost, LostHost, LostLink, LostSsd, Ran, Sent
from simcore.replica.machine import Machine
from simcore.replica.slowed_steps import SlowedSteps, own_steps
from simcore.timers import Timer

_LOSSES: Final = frozenset((Closing, Lost, LostHost, LostLink, LostSsd))


class Paces:
    """``under_way``: the two replicas of each transfer that slows steps; at most one transfer per replica.

    A run in progress continues with other step times from its next boundary on: the planned part ends there.
    """

    __slots__ = ("_machines", "_slowed", "_timers", "under_way")

    def __init__(self, machines: Mapping[int, Machine], timers: Mapping[int, Timer]) -> None:
        self._machines, self._timers = machines, timers
        self._slowed: dict[tuple[int, int], SlowedSteps] = {}
        self.under_way: dict[int, tuple[int, int]] = {}

    def begun(self, now_ns: int, event: Event, send: Send) -> None:
        """Handle the begin of a transfer while ``event`` is handled."""
        ends = self.under_way[send.transfer] = (send.source, send.target)
        for replica in ends:
            self._set(now_ns, event, replica, send.slowdown_ppm)

    def ended(self, now_ns: int, event: Event, transfer: int) -> None:
        """Handle the end or stop of a transfer."""
        for replica in self.under_way.pop(transfer, ()):
            self._set(now_ns, event, replica, 0)

    def _set(self, now_ns: int, event: Event, replica: int, ppm: int) -> None:
        machine = self._machines[replica]
        rows = own_steps(machine._rows)
        if ppm:
            slowed = self._slowed.get((replica, ppm))
            if slowed is None or slowed.own is not rows:
                slowed = self._slowed[replica, ppm] = SlowedSteps(rows, ppm)
            rows = slowed
        machine._rows, machine._pieces, machine._output_token = rows, rows.decode, rows.output_token
        if machine.run is None or not machine._steps:
            return
        # With single steps, replicas of a lower rank at a boundary now would already be in their next step.
        at_ns = now_ns + (replica < _rank(event))
        booked = machine._joined and machine._begins_later(at_ns)
        steps = 0 if booked else machine._steps_by(at_ns)
        if steps < machine._steps:
            machine._steps = steps
            machine._fix_due()
            self._timers[replica].at(machine.due_ns)


def _rank(event: Event) -> float:
    """Boundaries at the time of this event come before it for replicas of a lower rank."""
    if type(event) is Ran:
        return event.replica
    return inf if type(event) in _LOSSES or (type(event) is Sent and event.cause) else -1
