"""Events due by the clock alone: a request arrives, or the controller is woken as it requested."""

from array import array
from typing import Protocol

from realexec.world.arrivals import Arrivals
from realexec.world.tracking import Tracker
from serving.vocabulary.events import Arrived, Event, Woke


class Waker(Protocol):
    """``wake_ns``: when to wake the controller; None: it has not requested a wake."""

    wake_ns: int | None


class Due:
    """Arrivals and wakes by time.

    ``lateness_ns``: per arrival, how long after its time it was taken; ``taken_ns``: when, by request.
    """

    def __init__(self, arrivals: Arrivals, tracker: Tracker, waker: Waker) -> None:
        self._arrivals, self._tracker, self._waker = arrivals, tracker, waker
        self.lateness_ns = array("q")
        self.taken_ns: dict[int, int] = {}

    @property
    def has_arrivals(self) -> bool:
        """Whether there is another request to arrive, as far as is known now."""
        return self._arrivals.request is not None

    def handled(self, now_ns: int) -> None:
        """After an event: report to a closed loop how many requests are left, since some may have ended."""
        self._arrivals.in_flight(now_ns, self._tracker.unfinished)

    def times_ns(self) -> list[int]:
        """The times of the next arrival and of the wake, as far as there are any."""
        arrival_ns = self._arrivals.due_ns if self.has_arrivals else None
        return [time_ns for time_ns in (arrival_ns, self._waker.wake_ns) if time_ns is not None]

    def take(self, now_ns: int) -> Event | None:
        """Take the event due by now, the earlier one first; at equal times the arrival."""
        wake_ns = self._waker.wake_ns
        first_ns = min(self.times_ns(), default=now_ns + 1)
        if first_ns > now_ns:
            return None
        if self.has_arrivals and self._arrivals.due_ns == first_ns:
            return self._arrive(now_ns)
        assert wake_ns == first_ns
        self._waker.wake_ns = None
        return Woke()

    def _arrive(self, now_ns: int) -> Arrived:
        arrivals = self._arrivals
        request = arrivals.request
        assert request is not None
        self.lateness_ns.append(now_ns - request.arrival_ns)
        self.taken_ns[request.id] = now_ns
        self._tracker.arrive(request, arrivals.prompt, arrivals.output_tokens)
        arrivals.advance()
        return Arrived(request)
