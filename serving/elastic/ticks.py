"""When the load monitor looks, and when instances are paired: one ``Wake`` at a time serves both.

Without rounds (``serving.services.rounds.Rounds``) the clock runs while the monitor has models to look at.
With rounds the clock runs from the opening of the world on, once per round. The monitor then looks at the
first round that is not before its time.
"""

from serving.services.rounds import Rounds
from serving.vocabulary.actions import Action, Wake


class Ticks:
    """``armed``: a look of the load monitor is due. ``period_ns``: of the load monitor."""

    __slots__ = ("_look_ns", "_period_ns", "_rounds", "armed")

    def __init__(self, period_ns: int, rounds: Rounds | None) -> None:
        self._period_ns, self._rounds = period_ns, rounds
        self._look_ns = 0
        self.armed = False

    @property
    def has_rounds(self) -> bool:
        """Whether the clock runs from the opening of the world on."""
        return self._rounds is not None

    def opened(self, now_ns: int, actions: list[Action]) -> None:
        """Schedule the first round, a period from now."""
        if self._rounds is not None:
            actions.append(self._rounds.wake(now_ns))

    def arm(self, now_ns: int, actions: list[Action]) -> None:
        """Schedule the monitor's next look at the end of its period."""
        self.armed = True
        self._look_ns = (now_ns // self._period_ns + 1) * self._period_ns
        if self._rounds is None:
            actions.append(Wake(self._look_ns, "load monitor"))

    def woke(self, now_ns: int, actions: list[Action]) -> bool:
        """Handle a tick: run a round, if configured. Returns whether the monitor looks, which disarms it."""
        if self._rounds is not None:
            self._rounds.look(actions)
            actions.append(self._rounds.wake(now_ns))
            if not self.armed or now_ns < self._look_ns:
                return False
        self.armed = False
        return True

    def settled_ns(self, looks: int) -> int:
        """When ``looks`` more looks will have been taken; 0: every tick is a look."""
        return 0 if self._rounds is None else self._look_ns + looks * self._period_ns
