"""The event that is being handled, for those who write down when something happened."""

from serving.vocabulary.events import Event
from serving.vocabulary.step_counts import StepCounts


class Present:
    """Moved on by the controller alone; ``step_counts`` knows how far runs in progress are."""

    __slots__ = ("event", "now_ns", "step_counts")

    def __init__(self) -> None:
        self.now_ns = 0
        self.event: Event | None = None
        self.step_counts = StepCounts()
