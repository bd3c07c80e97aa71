"""Requests that join decode steps in progress: steps of a run that are booked before its report."""

from collections.abc import Callable

_AT_END = -1


class Joins:
    """State since a run's last report.

    before: the number of steps before each join; booked: steps, all before the present start of the run;
    waiting: requests that join at its end; late: (gap in fixed point, requests) of the last booked step,
    which may be in progress.
    """

    __slots__ = ("_gaps", "before", "booked", "late", "waiting")

    def __init__(self, gaps: Callable[[int, int, int, int], None]) -> None:
        self._gaps = gaps
        self.before: list[int] = []
        self.booked = 0
        self.late: list[tuple[int, int]] = []
        self.waiting: list[int] = []

    def settle(self) -> None:
        """The last booked step has ended: its tokens exist."""
        for gap, requests in self.late:
            self._gaps(gap, 0, 1, requests)
        self.late.clear()

    def book(self, waits: list[tuple[int, int]], first: int, slope: int, steps: int, residents: int) -> None:
        """Book steps of cost ``first + i * slope``; ``waits``: gaps that end with the first one."""
        self.settle()
        self.late += waits
        if steps > 1:
            self.settle()
            if steps > 2:
                self._gaps(first + slope, slope, steps - 2, residents)
            self.late.append((first + slope * (steps - 1), residents))
        self.booked += steps

    def now(self) -> None:
        """Let requests join after the booked steps."""
        self.before.append(self.booked)

    def at_end(self, requests: tuple[int, ...]) -> None:
        """Let requests join when the run ends, or continues with others."""
        self.before.append(_AT_END)
        self.waiting += requests

    def finish_run(self, steps: int) -> tuple[int, tuple[int, ...]]:
        """End the run after ``steps`` more steps: (steps since the last report, those before each join)."""
        self.settle()
        steps += self.booked
        before = tuple([steps if one == _AT_END else one for one in self.before])
        self.before.clear()
        self.waiting.clear()
        self.booked = 0
        return steps, before
