"""How many steps replicas have run since their last reports, in the middle of coalesced runs."""

from collections.abc import Callable, Mapping
from typing import Protocol

from serving.vocabulary.events import Ran
from serving.vocabulary.measured import Measured
from serving.vocabulary.step_counts import NOT_JOINED
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.machine import Machine
from simcore.replica.segment import steps_to_reach
from simcore.replica.slowed_steps import own_steps
from simcore.replica.step_times import Pieces


class MeasuresRequests(Protocol):
    """Keeps what servers measure of their requests."""

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured: ...


class StepsSince:
    """``serving.vocabulary.step_counts.StepSource`` of simulated replicas.

    A question during a report concerns the run that was just booked, so that run is kept.
    """

    __slots__ = ("_ended", "_ended_ns", "_machines", "_measured", "_reporting")

    def __init__(self, machines: Mapping[int, Machine], measured: MeasuresRequests | None = None) -> None:
        self._machines, self._measured = machines, measured
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

    def progress(self, replica: int, now_ns: int) -> tuple[int, ...]:
        """Steps of the run that ended before now and are not reported, then those before each join."""
        machine = self._machines[replica]
        joins, steps = machine._joins, self.steps(replica, now_ns)
        if joins.booked and (now_ns << FRACTION_BITS) <= machine._start_fixed:
            steps = joins.booked - 1  # requests join after it, and it has not ended
        return steps, *[NOT_JOINED if at < 0 else at for at in joins.before]

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """What servers have measured of requests."""
        assert self._measured is not None, "nobody measures requests"
        return self._measured.measured(model, since_ns, until_ns)

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
