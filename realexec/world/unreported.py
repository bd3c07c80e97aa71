"""Steps after which nothing is to be decided: the driver keeps them for the controller's next report.

Workers report every step if policies read the progress of instances. Only a report with which a run or a
request ends, or requests join, is an event. As in a simulation, policies that read the progress in between
are told how many steps have ended since the last event.
"""

from realexec.wire.messages import StepsDone
from realexec.world.reported import Reported
from serving.vocabulary.measured import Measured


class UnreportedSteps:
    """By replica, the steps since its last event. Implements serving.vocabulary.step_counts.StepSource."""

    def __init__(self, reported: Reported, start_ns: int) -> None:
        """``start_ns``: machine time of the run's time 0."""
        self._reported, self._start_ns = reported, start_ns
        self._kept: dict[int, StepsDone] = {}
        # The steps of the event that the controller handles now, or has handled last.
        self._newest: tuple[int, tuple[int, ...]] = (-1, ())

    def keeps(self, replica: int, message: StepsDone) -> bool:
        """Whether nothing is to be decided after this report: it is then kept for the next event."""
        kept = self._kept.get(replica)
        if not message.running or message.finished or message.joins:
            return False
        if kept is not None and kept.tokens.keys() != message.tokens.keys():
            return False
        self._kept[replica] = _joined(kept, message)
        return True

    def event(self, replica: int, message: StepsDone) -> StepsDone:
        """The report of all steps since the replica's last event, of which ``message`` has the last ones."""
        whole = _joined(self._kept.pop(replica, None), message)
        self._newest = replica, whole.ends_ns
        return whole

    def lose(self, replica: int) -> None:
        """Forget the steps of a lost replica."""
        self._kept.pop(replica, None)

    def steps(self, replica: int, before_ns: int) -> int:
        """See ``StepSource``."""
        before_ns += self._start_ns
        newest, ends_ns = self._newest
        if replica != newest or not ends_ns or before_ns > ends_ns[-1]:
            kept = self._kept.get(replica)
            ends_ns = () if kept is None else kept.ends_ns
        return sum(end_ns < before_ns for end_ns in ends_ns)

    def least_step_ns(self, replica: int, requests: int) -> int:
        """See `Reported`."""
        return self._reported.least_step_ns(replica, requests)

    def progress(self, replica: int, now_ns: int) -> tuple[int, ...]:
        """See ``StepSource``; a report with joins is an event, so none has joined in these steps."""
        return (self.steps(replica, now_ns),)

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """See `Reported`."""
        return self._reported.measured(model, since_ns, until_ns)


def _joined(first: StepsDone | None, then: StepsDone) -> StepsDone:
    """One report of the steps of two reports of a run."""
    if first is None:
        return then
    steps = len(first.ends_ns)
    tokens = {request: first.tokens.get(request, ()) + row for request, row in then.tokens.items()}
    return then._replace(
        started_ns=first.started_ns,
        ends_ns=first.ends_ns + then.ends_ns,
        tokens={**first.tokens, **tokens},
        joins=tuple([steps + before for before in then.joins]),
        cpu_ns=first.cpu_ns + then.cpu_ns,
    )
