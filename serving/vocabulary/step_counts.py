"""How far replicas are in the middle of coalesced runs: the driver is asked, and the journal has its answers.

Events come at boundaries at which something is to be decided. What schedulers know of instances is taken once
per period instead (``serving.engine.load_reports``), mostly between two events; it is asked for only when
somebody reads it. So replay hears the same answers in the same order (``Recorded``).
"""

from collections.abc import Sequence
from typing import Protocol


class StepSource(Protocol):
    """Who knows it: a driver, or a journal."""

    def steps(self, replica: int, before_ns: int) -> int:
        """Steps that have ended before then, since what the replica's engine knows.

        While its report is handled: since its report before that.
        """

    def least_step_ns(self, replica: int, requests: int) -> int:
        """No step in which at most so many requests decode, and no prompt is computed, takes less."""


class StepCounts:
    """``read``: whether anybody asks, so that a driver puts itself there as ``source``.

    ``told``: its answers, if somebody writes them down.
    """

    __slots__ = ("read", "source", "told")

    def __init__(self) -> None:
        self.read = False
        self.source: StepSource | None = None
        self.told: list[int] | None = None

    def steps(self, replica: int, before_ns: int) -> int:
        """See ``StepSource``."""
        source = self.source
        assert source is not None, "this driver does not tell steps, so its instances make no load reports"
        answer = source.steps(replica, before_ns)
        if self.told is not None:
            self.told.append(answer)
        return answer

    def least_step_ns(self, replica: int, requests: int) -> int:
        """See ``StepSource``."""
        source = self.source
        assert source is not None, "this driver does not tell steps, so its instances make no load reports"
        answer = source.least_step_ns(replica, requests)
        if self.told is not None:
            self.told.append(answer)
        return answer

    def take(self) -> Sequence[int]:
        """What was told since this was last asked, for the line of the event that is over."""
        told = self.told
        if not told:
            return ()
        self.told = []
        return told


def step_counts_of(controller: object, source: StepSource, writes: bool) -> StepCounts | None:
    """Those that a controller asks for, from now on told by this driver; None: it asks for none.

    ``writes``: whether the driver writes them down.
    """
    counts = getattr(controller, "step_counts", None)
    if not isinstance(counts, StepCounts) or not counts.read:
        return None
    counts.source = source
    if writes:
        counts.told = []
    return counts


class Recorded:
    """The answers of one line of a journal after the other."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: list[int] = []

    def begin(self, told: Sequence[int]) -> None:
        """Of the next event."""
        self._left = list(reversed(told))

    def steps(self, replica: int, before_ns: int) -> int:
        """The next answer."""
        return self._next(replica)

    def least_step_ns(self, replica: int, requests: int) -> int:
        """The next answer."""
        return self._next(replica)

    def _next(self, replica: int) -> int:
        if not self._left:
            raise ValueError(f"the steps of instance {replica} were not asked for")
        return self._left.pop()

    @property
    def unheard(self) -> int:
        """Answers that nobody has asked for."""
        return len(self._left)
