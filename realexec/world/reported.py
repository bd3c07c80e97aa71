"""Answers to step queries where engines report all that happens: nothing is known beyond their reports."""

from typing import Protocol

from serving.vocabulary.measured import Measured


class Measures(Protocol):
    """Tells what was measured of requests, such as ``MeasuredRequests``."""

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """See ``serving.vocabulary.step_counts.StepSource``."""


class Reported:
    """``measures``: None if nobody asks what was measured.

    Implements serving.vocabulary.step_counts.StepSource.
    """

    def __init__(self, measures: Measures | None) -> None:
        self._measures = measures

    def steps(self, replica: int, before_ns: int) -> int:
        """Return 0: there are no steps beyond those reported."""
        return 0

    def least_step_ns(self, replica: int, requests: int) -> int:
        """Return 0: the shortest real step is unknown, so no instance is assumed to have memory for long."""
        return 0

    def progress(self, replica: int, now_ns: int) -> tuple[int, ...]:
        """Return that there are no steps beyond those reported, and no joins."""
        return (0,)

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """What was measured of the model's requests."""
        assert self._measures is not None, "nobody measures requests"
        return self._measures.measured(model, since_ns, until_ns)
