"""How many steps replicas have run since their last reports, in the middle of coalesced runs."""

from collections.abc import Callable, Mapping

from serving.vocabulary.events import Ran
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach
from simcore.replica.slowed_steps import own_steps
from simcore.replica.step_times import Pieces


class StepsSince:
    """``serving.vocabulary.step_counts.StepSource`` of simulated replicas.

    A question during a report concerns the run that was just booked, so that run is kept.
    """

    __slots__ = ("_ended", "_ended_ns", "_machines", "_reporting")

    def __init__(self, machines: Mapping[int, Machine]) -> None:
        self._machines = machines
        # The last run that ended: where, when, and its progress (see ``_steps_before``).
        self._reporting = self._ended_ns = -1
        self._ended = (0, 0, 0, 0, 0)

    def completing(self, machine: Machine) -> Callable[[], Ran]:
        """A replacement for ``machine.complete``."""

        def complete() -> Ran:
            self._reporting, self._ended_ns = machine.id, machine.due_ns
            self._ended = (
                machine._start_fixed, machine._head, machine._first, machine._slope, machine._joins.booked
            )  # fmt: skip
            return machine.complete()

        return complete

    def steps(self, replica: int, before_ns: int) -> int:
        """Number of steps that ended before ``before_ns`` and have not been reported to the engine."""
        if replica == self._reporting and before_ns <= self._ended_ns:
            return _steps_before(before_ns, self._ended)
        machine = self._machines[replica]
        if machine.run is None:
            return 0
        booked, head = machine._joins.booked, machine._head
        left = (before_ns << FRACTION_BITS) - machine._start_fixed - head
        if left <= 0:
            return booked
        if head > 0:
            booked += 1
        first = machine._first
        return booked + steps_to_reach(first, machine._slope, left) - 1 if first else booked

    def least_step_ns(self, replica: int, requests: int) -> int:
        """The least duration of a step, from step costs."""
        pieces = own_steps(self._machines[replica]._rows).decode
        return min([_least_fixed(pieces(count)) for count in range(1, requests + 1)]) >> FRACTION_BITS


def _least_fixed(pieces: Pieces) -> int:
    """The least value of the linear pieces, each from the end of the one before it."""
    least, start = -1, 0
    for limit, intercept, slope in pieces:
        cost = intercept + slope * (start if slope >= 0 else limit)
        least, start = cost if least < 0 else min(least, cost), limit + 1
    return max(least, 0)


def _steps_before(now_ns: int, progress: tuple[int, int, int, int, int]) -> int:
    """Booked steps that end before now, plus those of the run after them."""
    start_fixed, head, first, slope, booked = progress
    left = (now_ns << FRACTION_BITS) - start_fixed - head
    if left <= 0:
        return booked
    ended = int(head > 0)
    if first:
        ended += steps_to_reach(first, slope, left) - 1
    return booked + ended
