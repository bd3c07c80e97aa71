"""When to pair instances for migration: once per period, without the rounds that cannot pair any."""

from collections.abc import Iterable
from typing import Final, Protocol

from serving.engine.load_reports import BEFORE_TICKS
from serving.protocols.migration import NEVER_NS
from serving.vocabulary.actions import Action, Wake
from serving.vocabulary.current_event import Present

_WHY: Final = "instances are paired for migration"


class Paired(Protocol):
    """A service whose running requests migrate. It calls ``rounds.rouse`` to request the next round."""

    rounds: "Rounds | None"

    def look(self, actions: list[Action]) -> None:
        """A period has ended: pair instances."""

    def quiet_until_ns(self) -> int:
        """Until then no instances are paired, if nothing happens; 0: unknown."""


class Rounds:
    """The rounds of the services whose running requests migrate.

    ``every``: only one round in this many periods can pair instances.
    """

    __slots__ = ("_armed_ns", "_every_ns", "_present", "_services", "period_ns")

    def __init__(self, services: Iterable[Paired], period_ns: int, present: Present, every: int = 1) -> None:
        self._services, self._present = tuple(services), present
        self.period_ns, self._every_ns = period_ns, period_ns * every
        self._armed_ns = NEVER_NS

    def look(self, actions: list[Action]) -> None:
        """A period has ended: let each service pair its instances, if the global scheduler works."""
        if self._present.scheduler_lost:
            return
        for service in self._services:
            service.look(actions)

    def wake(self, now_ns: int) -> Wake:
        """The action that requests a call one period from now."""
        return Wake(now_ns + self.period_ns, _WHY)

    # Skipping rounds that cannot pair instances.

    def opened(self, actions: list[Action]) -> None:
        """Start: from now on instances are paired."""
        for service in self._services:
            service.rounds = self
        self._arm(actions)

    def woke(self, now_ns: int, actions: list[Action]) -> None:
        """Run a round. One that was requested before it was known to be skippable pairs no instances."""
        self.look(actions)
        if now_ns >= self._armed_ns:
            self._arm(actions)
        elif self._armed_ns < NEVER_NS:  # the request of an earlier call cancels a later one in the world
            actions.append(Wake(self._armed_ns, _WHY))

    def rouse(self, quiet_ns: int, actions: list[Action]) -> None:
        """Something has happened to a service: from ``quiet_ns`` on a round may pair instances."""
        if quiet_ns < self._armed_ns:
            self._ask(quiet_ns, actions)

    def _arm(self, actions: list[Action]) -> None:
        """Request the next round that can pair instances."""
        self._armed_ns = quiet_ns = NEVER_NS
        for service in self._services:
            quiet_ns = min(quiet_ns, service.quiet_until_ns())
        if quiet_ns < NEVER_NS:
            self._ask(quiet_ns, actions)

    def _ask(self, quiet_ns: int, actions: list[Action]) -> None:
        """Request the first round not before ``quiet_ns``, unless an earlier one is requested."""
        now_ns, every_ns = self._present.now_ns, self._every_ns
        due_ns = (now_ns // every_ns + 1) * every_ns
        if due_ns - now_ns == every_ns and now_ns and type(self._present.event) in BEFORE_TICKS:
            due_ns = now_ns  # this moment's own round has not run yet
        due_ns = max(due_ns, -(-quiet_ns // every_ns) * every_ns)
        if due_ns < self._armed_ns:
            self._armed_ns = due_ns
            actions.append(Wake(due_ns, _WHY))


# When the load monitor looks, and when instances are paired: one ``Wake`` at a time serves both.
# Without ``Rounds`` the clock runs while the monitor has models to look
# at. With rounds the clock runs from the opening of the world on, once per round. The monitor then looks at
# the first round that is not before its time.


class Ticks:
    """``armed``: a look of the load monitor is scheduled. ``period_ns``: time between two of its looks."""

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
