"""Live scaling under which nobody is live: where no policy for it is configured."""

from serving.live.host import LiveSetup
from serving.protocols.live import LiveChoice, LivePlan, LiveView


class NeverAsked:
    """LiveScheduler of no pairs."""

    __slots__ = ("ahead", "solve_ns")

    def __init__(self) -> None:
        self.ahead = self.solve_ns = 0

    def plan(self, view: LiveView) -> LivePlan:
        """Nobody asks."""
        raise AssertionError("nobody is live")


class NeverLive:
    """LivePolicy that chooses nobody."""

    __slots__ = ("embeds", "scheduler")

    def __init__(self) -> None:
        self.embeds = True
        self.scheduler = NeverAsked()

    def select(self, choice: LiveChoice) -> tuple[int, ...]:
        """None of them."""
        return ()


def never_live() -> LiveSetup:
    """Of any model."""
    return LiveSetup(NeverLive(), 1, 0, 1.0, enabled=False)
