"""Runs in flight: since when nothing has been heard of them, and who joined them."""

from dataclasses import dataclass

from realexec.messages import StepsDone
from serving.vocabulary.events import Ran


@dataclass(slots=True)
class RunInFlight:
    """heard_ns: when its replica was last heard of. joins: told to join and not reported yet."""

    heard_ns: int
    joins: int = 0


class Runs:
    """At most one per replica."""

    def __init__(self) -> None:
        self._in_flight: dict[int, RunInFlight] = {}

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self, replica: int, now_ns: int) -> None:
        """A replica is told to run."""
        self._in_flight[replica] = RunInFlight(now_ns)

    def heard(self, replica: int, now_ns: int) -> None:
        """A sign of life."""
        if replica in self._in_flight:
            self._in_flight[replica].heard_ns = now_ns

    def join(self, replica: int) -> None:
        """Requests are told to join: in the middle of a run, if one is in flight as far as is known here."""
        if replica in self._in_flight:
            self._in_flight[replica].joins += 1

    def lose(self, replica: int) -> None:
        """It never ends."""
        self._in_flight.pop(replica, None)

    def ran(self, replica: int, done: StepsDone, now_ns: int) -> Ran:
        """What the controller is told.

        A run may have ended before its worker read that requests are to join. They take part after its last
        step then, which is what the controller is told.
        """
        steps, joins = len(done.ends_ns), done.joins
        run = self._in_flight.get(replica)
        if run is not None:
            run.heard_ns = now_ns
            run.joins -= len(joins)
            if not done.running:
                joins += (steps,) * run.joins
                del self._in_flight[replica]
        return Ran(replica, done.epoch, steps, done.finished, done.running, joins=joins)

    def silent(self, now_ns: int, patience_ns: int) -> list[int]:
        """Replicas that were not heard of for so long; they are not named again for as long."""
        found = [one for one, run in self._in_flight.items() if now_ns - run.heard_ns >= patience_ns]
        for replica in found:
            self._in_flight[replica].heard_ns = now_ns
        return found
