"""What happens by the clock alone: requests arrive, and the controller is woken when it asked to be."""

from array import array
from typing import Protocol

from realexec.tracking import Tracker
from realexec.world.arrivals import Arrivals
from serving.vocabulary.events import Arrived, Event, Woke


class Waker(Protocol):
    """``wake_ns``: when the controller is to be woken; None: it did not ask."""

    wake_ns: int | None


class Due:
    """``lateness_ns`` has one entry per arrival: how long after its time it was taken."""

    def __init__(self, arrivals: Arrivals, tracker: Tracker, waker: Waker) -> None:
        self._arrivals, self._tracker, self._waker = arrivals, tracker, waker
        self.lateness_ns = array("q")

    @property
    def has_arrivals(self) -> bool:
        """Whether more requests will come."""
        return self._arrivals.request is not None

    def handled(self, now_ns: int) -> None:
        """Something was told: requests may have ended."""
        self._arrivals.in_flight(now_ns, self._tracker.unfinished)

    def times_ns(self) -> list[int]:
        """Of the next arrival and of the wake, those that there are."""
        arrival_ns = self._arrivals.due_ns if self.has_arrivals else None
        return [one for one in (arrival_ns, self._waker.wake_ns) if one is not None]

    def take(self, now_ns: int) -> Event | None:
        """What is to happen by now, the earlier first; of two at one time the arrival."""
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
        self._tracker.arrive(request, arrivals.prompt, arrivals.output_tokens)
        arrivals.advance()
        return Arrived(request)
