"""Requests that join decode steps in progress: what is booked of a run before anybody is told of it."""

_AT_END = -1


class Joins:
    """Since a run's last report. booked: steps, all before the run in progress begins; waiting: who joins at
    its end.
    """

    __slots__ = ("_before", "booked", "waiting")

    def __init__(self) -> None:
        self._before: list[int] = []  # steps before each join
        self.booked = 0
        self.waiting: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._before)

    def now(self) -> None:
        """Somebody joins after the steps that are booked."""
        self._before.append(self.booked)

    def at_end(self, requests: tuple[int, ...]) -> None:
        """They join when the run ends, or goes on with others."""
        self._before.append(_AT_END)
        self.waiting += requests

    def told(self, steps: int) -> tuple[int, tuple[int, ...]]:
        """The run's end after so many steps more: (steps since the last report, those before each join)."""
        steps += self.booked
        before = tuple([steps if one == _AT_END else one for one in self._before])
        self._before.clear()
        self.waiting.clear()
        self.booked = 0
        return steps, before
