"""The event that is being handled and its time, for components that record when something happened."""

from serving.vocabulary.events import Event
from serving.vocabulary.step_counts import StepCounts


class Present:
    """Updated by the controller alone; ``step_counts`` reports the progress of runs in progress."""

    __slots__ = ("event", "now_ns", "step_counts")

    def __init__(self) -> None:
        self.now_ns = 0
        self.event: Event | None = None
        self.step_counts = StepCounts()
