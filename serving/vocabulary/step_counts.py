"""What only the driver knows: the controller queries it, and the journal records the answers.

Progress inside coalesced runs:

Events come at boundaries that need a decision. Schedulers read the state of instances once per period instead
(``serving.engine.load_reports``), mostly between two events; it is queried only when it is read. Replay gives
the same answers in the same order (``Recorded``).
"""

from collections.abc import Sequence
from typing import Final, Protocol

from serving.vocabulary.measured import Measured, measured_of, numbers_of

NOT_JOINED: Final = 1 << 62


class StepSource(Protocol):
    """Answers step queries: a driver, or a journal."""

    def steps(self, replica: int, before_ns: int) -> int:
        """Number of steps of the replica that ended before that time and are not in the state of its engine.

        While a report of the replica is handled, these are the steps since its previous report.
        """

    def least_step_ns(self, replica: int, requests: int) -> int:
        """Lower bound on a step in which at most this many requests decode and no prompt is computed."""

    def progress(self, replica: int, now_ns: int) -> Sequence[int]:
        """Steps of the present run that ended before now and are not reported, then those before each join.

        Joins are the ``JoinBatch``es of the run, in order; one that waits for the end of the run has
        ``NOT_JOINED``.
        """

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """What was measured of the model's requests from ``since_ns`` up to, not including, ``until_ns``."""


class StepCounts:
    """Forwards queries to ``source``. ``read``: there are queries, so the driver must set ``source``.

    ``measures``: one of them is for what is ``measured``. ``answers``: the answers so far, if the driver
    writes them to a journal.
    """

    __slots__ = ("answers", "measures", "read", "source")

    def __init__(self) -> None:
        self.read = self.measures = False
        self.source: StepSource | None = None
        self.answers: list[int] | None = None

    def steps(self, replica: int, before_ns: int) -> int:
        """The answer of ``source`` to the same query."""
        source = self.source
        assert source is not None, "this driver does not count steps, so load reports are not available"
        answer = source.steps(replica, before_ns)
        if self.answers is not None:
            self.answers.append(answer)
        return answer

    def least_step_ns(self, replica: int, requests: int) -> int:
        """The answer of ``source`` to the same query."""
        source = self.source
        assert source is not None, "this driver does not count steps, so load reports are not available"
        answer = source.least_step_ns(replica, requests)
        if self.answers is not None:
            self.answers.append(answer)
        return answer

    def progress(self, replica: int, now_ns: int) -> Sequence[int]:
        """The answer of ``source`` to the same query."""
        source = self.source
        assert source is not None, "this driver does not count steps, so metrics are not available"
        answer = source.progress(replica, now_ns)
        if self.answers is not None:
            self.answers += [len(answer), *answer]
        return answer

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """The answer of ``source`` to the same query."""
        source = self.source
        assert source is not None, "this driver measures nothing, so metrics are not available"
        answer = source.measured(model, since_ns, until_ns)
        if self.answers is not None:
            self.answers.extend(numbers_of(answer))
        return answer

    def take(self) -> Sequence[int]:
        """Return the answers given since the last call, for the journal line of the event just handled."""
        answers = self.answers
        if not answers:
            return ()
        self.answers = []
        return answers


def register(counts: StepCounts | None, source: StepSource, writes: bool) -> StepCounts | None:
    """Make this driver the ``source`` of a controller's step counts; None if the controller queries none.

    ``writes``: whether the driver writes the answers down.
    """
    if counts is None or not counts.read:
        return None
    counts.source = source
    if writes:
        counts.answers = []
    return counts


class Recorded:
    """Replays the answers of one journal line in order."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: list[int] = []

    def begin(self, answers: Sequence[int]) -> None:
        """Load the answers of the next event."""
        self._left = list(reversed(answers))

    def steps(self, replica: int, before_ns: int) -> int:
        """The next answer."""
        return self._next(replica)

    def least_step_ns(self, replica: int, requests: int) -> int:
        """The next answer."""
        return self._next(replica)

    def progress(self, replica: int, now_ns: int) -> Sequence[int]:
        """The next answer."""
        return tuple([self._next(replica) for _ in range(self._next(replica))])

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """The next answer."""
        answer, taken = measured_of(self._left[::-1])
        del self._left[len(self._left) - taken :]
        return answer

    def _next(self, replica: int) -> int:
        if not self._left:
            raise ValueError(f"the journal line has no step count for instance {replica}")
        return self._left.pop()

    @property
    def unheard(self) -> int:
        """Number of answers that were not queried."""
        return len(self._left)
