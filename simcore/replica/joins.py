"""Requests that join decode steps in progress: what is booked of a run before it is reported."""

_AT_END = -1


class Joins:
    """Since a run's last report. before: of each join the steps before it; booked: steps, all before the run
    in progress begins; waiting: requests that join at its end.
    """

    __slots__ = ("before", "booked", "waiting")

    def __init__(self) -> None:
        self.before: list[int] = []
        self.booked = 0
        self.waiting: list[int] = []

    def now(self) -> None:
        """Requests join after the steps that are booked."""
        self.before.append(self.booked)

    def at_end(self, requests: tuple[int, ...]) -> None:
        """They join when the run ends, or goes on with others."""
        self.before.append(_AT_END)
        self.waiting += requests

    def finish_run(self, steps: int) -> tuple[int, tuple[int, ...]]:
        """The run's end after so many steps more: (steps since the last report, those before each join)."""
        steps += self.booked
        before = tuple([steps if one == _AT_END else one for one in self.before])
        self.before.clear()
        self.waiting.clear()
        self.booked = 0
        return steps, before
