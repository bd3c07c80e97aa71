"""The event that is being handled and its time, for components that record when something happened."""

from serving.vocabulary.events import Event
from serving.vocabulary.step_counts import StepCounts


class Present:
    """The event, its time and ``step_counts``, the progress of runs in progress, are set by the controller.

    ``timed_out``: requests that a service has failed during the event, because they waited too long.
    """

    __slots__ = ("event", "now_ns", "step_counts", "timed_out")

    def __init__(self) -> None:
        self.now_ns = 0
        self.event: Event | None = None
        self.step_counts = StepCounts()
        self.timed_out: list[int] = []
