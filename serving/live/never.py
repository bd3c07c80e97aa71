"""A live policy that chooses no instance, for systems without live scaling."""

from serving.live.host import LiveSetup
from serving.protocols.live import LiveChoice, LivePlan, LiveView


class NeverAsked:
    """The scheduler of ``NeverLive``. As no instance is live, it is never asked for a plan."""

    __slots__ = ("ahead", "solve_ns")

    def __init__(self) -> None:
        self.ahead = self.solve_ns = 0

    def plan(self, view: LiveView) -> LivePlan:
        """Must not be called; a call is the caller's fault."""
        raise AssertionError("no instance serves while it loads")


class NeverLive:
    """LivePolicy that chooses no instance."""

    __slots__ = ("embeds", "scheduler")

    def __init__(self) -> None:
        self.embeds = True
        self.scheduler = NeverAsked()

    def select(self, choice: LiveChoice) -> tuple[int, ...]:
        """Choose no instance."""
        return ()


def never_live() -> LiveSetup:
    """The set-up of a model that never has live instances."""
    return LiveSetup(
        policy=NeverLive(), layers=1, activation_bytes_per_token=0, prefill_tokens_per_s=1.0, enabled=False
    )
