"""Requests that join decode steps in progress: steps of a run that are booked before its report."""

_AT_END = -1


class Joins:
    """State since a run's last report.

    before: the number of steps before each join; booked: steps, all before the present start of the run;
    waiting: requests that join at its end.
    """

    __slots__ = ("before", "booked", "waiting")

    def __init__(self) -> None:
        self.before: list[int] = []
        self.booked = 0
        self.waiting: list[int] = []

    def now(self) -> None:
        """Let requests join after the booked steps."""
        self.before.append(self.booked)

    def at_end(self, requests: tuple[int, ...]) -> None:
        """Let requests join when the run ends, or continues with others."""
        self.before.append(_AT_END)
        self.waiting += requests

    def finish_run(self, steps: int) -> tuple[int, tuple[int, ...]]:
        """End the run after ``steps`` more steps: (steps since the last report, those before each join)."""
        steps += self.booked
        before = tuple([steps if one == _AT_END else one for one in self.before])
        self.before.clear()
        self.waiting.clear()
        self.booked = 0
        return steps, before
