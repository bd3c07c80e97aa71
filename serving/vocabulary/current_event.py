"""What components may ask the controller: the current event and time, and if the global scheduler works."""

from serving.vocabulary.events import Event
from serving.vocabulary.step_counts import StepCounts


class Present:
    """The event, its time and ``step_counts``, the progress of runs in progress, are set by the controller.

    ``timed_out``: requests that a service has failed during the event, because they waited or ran too long.
    ``unsettled``: there are such requests, or aborts that are not over (``serving.services.aborts``).
    ``scheduler_lost``: the global scheduler has failed and does not work again yet (set by the controller).
    """

    __slots__ = ("event", "now_ns", "scheduler_lost", "step_counts", "timed_out", "unsettled")

    def __init__(self) -> None:
        self.now_ns = 0
        self.event: Event | None = None
        self.scheduler_lost = False
        self.step_counts = StepCounts()
        self.timed_out: list[int] = []
        self.unsettled = False
