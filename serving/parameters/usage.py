"""A quantity over time: its mean and its maximum, and every change if requested."""


class Usage:
    """An integer quantity from time 0 on; times must not decrease."""

    __slots__ = ("_area", "changes", "largest", "now", "since_ns")

    def __init__(self, now: int = 0) -> None:
        self.now = self.largest = now
        self.since_ns = self._area = 0
        self.changes: list[tuple[int, int]] | None = None  # (time, value from then on), if watched

    def watch(self) -> None:
        """Keep every change from now on."""
        self.changes = [(self.since_ns, self.now)]

    def begin(self, value: int) -> None:
        """Set the value from time 0 on, replacing earlier values."""
        self.now = self.largest = value
        self.since_ns = self._area = 0
        if self.changes is not None:
            self.watch()

    def set(self, now_ns: int, value: int) -> None:
        """Set the value from now on."""
        if value == self.now:
            return
        assert now_ns >= self.since_ns, "a quantity changed at an earlier time"
        self._area += self.now * (now_ns - self.since_ns)
        self.since_ns = now_ns
        self.now = value
        self.largest = max(self.largest, value)
        if self.changes is not None:
            self.changes.append((now_ns, value))

    def mean(self, until_ns: int) -> float:
        """The mean from time 0 to ``until_ns``, with the last value lasting until then."""
        if until_ns <= 0:
            return float(self.now)
        return (self._area + self.now * (until_ns - self.since_ns)) / until_ns
