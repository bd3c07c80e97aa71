"""Running sums of what happened at a stage; two copies give the rates, means and CVs between them."""

from dataclasses import dataclass, replace
from math import sqrt


@dataclass(slots=True, kw_only=True)
class StageCounts:
    """Arrivals and the gaps between them; passes, their requests and times; delays of requests that passed.

    Times in nanoseconds. ``last_ns``: time of the last arrival, -1 before the first.
    """

    last_ns: int = -1
    arrivals: int = 0
    gaps: int = 0
    gap_ns: int = 0
    gap_squares: int = 0
    passes: int = 0
    passed: int = 0
    pass_ns: int = 0
    pass_squares: int = 0
    delay_ns: int = 0

    def arrived(self, now_ns: int) -> None:
        """Count a request's arrival at the stage."""
        self.arrivals += 1
        if self.last_ns >= 0:
            gap_ns = now_ns - self.last_ns
            self.gaps += 1
            self.gap_ns += gap_ns
            self.gap_squares += gap_ns * gap_ns
        self.last_ns = now_ns

    def ran(self, took_ns: int, delays_ns: list[int]) -> None:
        """Count a pass. ``delays_ns``: one delay for each request of the pass."""
        self.passes += 1
        self.passed += len(delays_ns)
        self.pass_ns += took_ns
        self.pass_squares += took_ns * took_ns
        self.delay_ns += sum(delays_ns)

    def arrivals_alone(self) -> "StageCounts":
        """A copy without passes: the start of a new stage that the same requests reach."""
        return replace(self, passes=0, passed=0, pass_ns=0, pass_squares=0, delay_ns=0)

    def copy(self) -> "StageCounts":
        """A copy of the current sums."""
        return replace(self)

    def since(self, before: "StageCounts") -> "StageCounts":
        """The sums of what came after ``before`` was copied."""
        return StageCounts(
            last_ns=self.last_ns,
            arrivals=self.arrivals - before.arrivals,
            gaps=self.gaps - before.gaps,
            gap_ns=self.gap_ns - before.gap_ns,
            gap_squares=self.gap_squares - before.gap_squares,
            passes=self.passes - before.passes,
            passed=self.passed - before.passed,
            pass_ns=self.pass_ns - before.pass_ns,
            pass_squares=self.pass_squares - before.pass_squares,
            delay_ns=self.delay_ns - before.delay_ns,
        )

    @property
    def arrival_cv(self) -> float:
        """CV of the gaps between arrivals; 0 with fewer than two gaps."""
        return _cv(self.gaps, self.gap_ns, self.gap_squares)

    @property
    def pass_cv(self) -> float:
        """CV of the pass times; 0 with fewer than two passes."""
        return _cv(self.passes, self.pass_ns, self.pass_squares)


def _cv(count: int, total: int, squares: int) -> float:
    if count < 2 or not total:
        return 0.0
    return sqrt(max(0, squares * count - total * total)) / total
