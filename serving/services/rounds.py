"""When instances are looked at to be paired: once per period, but for looks that can find nobody."""

from collections.abc import Iterable
from typing import Final, Protocol

from serving.engine.load_reports import BEFORE_TICKS
from serving.protocols.migration import NEVER_NS
from serving.vocabulary.actions import Action, Wake
from serving.vocabulary.present import Present

_WHY: Final = "instances are paired for migration"


class Paired(Protocol):
    """A service whose running requests migrate. ``rounds``: to be asked for a look (``Rounds.rouse``)."""

    rounds: "Rounds | None"

    def look(self, actions: list[Action]) -> None:
        """A period is over."""

    def quiet_until_ns(self) -> int:
        """Before then nobody is paired, if nothing happens; 0: who knows."""


class Rounds:
    """Of the services whose running requests migrate.

    ``every``: only in every such period something can come of it.
    """

    __slots__ = ("_armed_ns", "_every_ns", "_present", "_services", "period_ns")

    def __init__(self, services: Iterable[Paired], period_ns: int, present: Present, every: int = 1) -> None:
        self._services, self._present = tuple(services), present
        self.period_ns, self._every_ns = period_ns, period_ns * every
        self._armed_ns = NEVER_NS

    def look(self, actions: list[Action]) -> None:
        """A period is over."""
        for service in self._services:
            service.look(actions)

    def wake(self, now_ns: int) -> Wake:
        """To be called a period from now."""
        return Wake(now_ns + self.period_ns, _WHY)

    # Rounds that are left out while nothing can come of them.

    def opened(self, actions: list[Action]) -> None:
        """From now on instances are paired."""
        for service in self._services:
            service.rounds = self
        self._arm(actions)

    def woke(self, now_ns: int, actions: list[Action]) -> None:
        """A look; if it was asked for before it was known that it can be left out, it finds nobody."""
        self.look(actions)
        if now_ns >= self._armed_ns:
            self._arm(actions)
        elif self._armed_ns < NEVER_NS:  # a world with an earlier call to make forgets a later one
            actions.append(Wake(self._armed_ns, _WHY))

    def rouse(self, quiet_ns: int, actions: list[Action]) -> None:
        """Something has happened to a service: before ``quiet_ns`` nobody is paired, then somebody may be."""
        if quiet_ns < self._armed_ns:
            self._ask(quiet_ns, actions)

    def _arm(self, actions: list[Action]) -> None:
        """To be called when something can come of it."""
        self._armed_ns = NEVER_NS
        quiet_ns = min([service.quiet_until_ns() for service in self._services], default=NEVER_NS)
        if quiet_ns < NEVER_NS:
            self._ask(quiet_ns, actions)

    def _ask(self, quiet_ns: int, actions: list[Action]) -> None:
        """For the first round that is not before then, unless an earlier one is asked for."""
        now_ns, every_ns = self._present.now_ns, self._every_ns
        due_ns = (now_ns // every_ns + 1) * every_ns
        if due_ns - now_ns == every_ns and now_ns and type(self._present.event) in BEFORE_TICKS:
            due_ns = now_ns  # the round of this very time is yet to come
        due_ns = max(due_ns, -(-quiet_ns // every_ns) * every_ns)
        if due_ns < self._armed_ns:
            self._armed_ns = due_ns
            actions.append(Wake(due_ns, _WHY))
