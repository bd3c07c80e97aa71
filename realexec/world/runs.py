"""Runs in progress: when each was last heard of, and how many joins its worker has not reported yet."""

from dataclasses import dataclass

from realexec.wire.messages import StepsDone
from serving.vocabulary.events import Ran


@dataclass(slots=True)
class RunInFlight:
    """heard_ns: when its replica last reported. joins: joins that were sent and not reported yet."""

    heard_ns: int
    joins: int = 0


class Runs:
    """All runs in progress, at most one per replica."""

    def __init__(self) -> None:
        self._in_flight: dict[int, RunInFlight] = {}

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self, replica: int, now_ns: int) -> None:
        """Note that a replica has received a run."""
        self._in_flight[replica] = RunInFlight(now_ns)

    def heard(self, replica: int, now_ns: int) -> None:
        """Note a message from the replica."""
        if replica in self._in_flight:
            self._in_flight[replica].heard_ns = now_ns

    def join(self, replica: int) -> None:
        """Note joins that were sent: in the middle of a run, if the driver knows of one in progress."""
        if replica in self._in_flight:
            self._in_flight[replica].joins += 1

    def lose(self, replica: int) -> None:
        """Drop the run of a lost replica; it never ends."""
        self._in_flight.pop(replica, None)

    def ran(self, replica: int, done: StepsDone, now_ns: int) -> Ran:
        """Make the controller's event from a worker's report.

        A run may have ended before its worker read that requests join. They then take part after its last
        step, and the event says so.
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
        """Replicas that have sent nothing for ``patience_ns``; they are not returned again for as long."""
        found = [one for one, run in self._in_flight.items() if now_ns - run.heard_ns >= patience_ns]
        for replica in found:
            self._in_flight[replica].heard_ns = now_ns
        return found
