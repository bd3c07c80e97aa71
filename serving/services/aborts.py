"""Ends requests whose clients went away, and those of instances that may serve no longer.

What holds a request decides when it can go (``AbortState``): a queue gives it up at once, a batch at its next
step boundary. What runs layers of it, or moves its KV, is not stopped: the request goes when that is over. A
request that finishes or fails before has ended as such; then nothing is left to do. An ``Abort`` among the
actions is the end of its request. docs/contributing/STATES.md has the table of states and events.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, Protocol

from serving.vocabulary.abort import AbortState
from serving.vocabulary.actions import Abort, Action
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Disconnected, Event, Lost, LostHost, LostLink, LostSsd, Ran
from serving.vocabulary.request import Request

# A world reports these after the boundaries that are due at the same time.
_AFTER_BOUNDARIES: Final = (Lost, LostHost, LostLink, LostSsd)


class Aborting(Protocol):
    """A service whose requests may lose their clients.

    ``rank``: the reporting engine; step by step, lower ones have reported boundaries that are due now.
    """

    def abort(self, request: Request, rank: float, actions: list[Action]) -> AbortState:
        """Let a request go, with ``Abort``, as soon as what holds it allows; called again while ``HELD``."""

    def let_go(self, requests: Sequence[int], rank: float, actions: list[Action]) -> None:
        """Requests have left by ``Abort``: others use what they have freed."""


class Aborts:
    """The aborts that are not over: ``leaving`` by request.

    ``requests``: those in flight; ``services``: by model.
    """

    __slots__ = ("_causes", "_present", "_requests", "_services", "leaving")

    def __init__(
        self, requests: Mapping[int, Request], services: Mapping[str, Aborting], present: Present
    ) -> None:
        self._requests, self._services, self._present = requests, services, present
        self.leaving: dict[int, AbortState] = {}
        self._causes: dict[int, str] = {}  # of those that end for another reason than their client

    def disconnected(self, event: Disconnected) -> None:
        """The client of a request went away; ``settle`` follows. A request that has ended has no client."""
        request = self._requests.get(event.request)
        if request is not None:
            assert request.model in self._services, f"requests of {request.model} cannot be aborted"
            self.leaving.setdefault(request.id, AbortState.HELD)
            self._present.unsettled = True

    def end(self, requests: Iterable[int], cause: str) -> None:
        """End these requests for ``cause``; ``settle`` follows. Those that leave already do so as before."""
        for number in requests:
            request = self._requests.get(number)
            if request is not None and number not in self.leaving:
                assert request.model in self._services, f"requests of {request.model} cannot be aborted"
                self.leaving[number], self._causes[number] = AbortState.HELD, cause
                self._present.unsettled = True

    def settle(self, actions: list[Action]) -> list[Abort]:
        """After an event with its actions: let go what can go by now; returns the aborts of this event."""
        rank = _rank(self._present.event)
        for number in [number for number, state in self.leaving.items() if state is AbortState.HELD]:
            request = self._requests.get(number)
            if request is not None:
                self.leaving[number] = self._services[request.model].abort(request, rank, actions)
        ended, seen = list[Abort](), 0
        while fresh := [action for action in actions[seen:] if type(action) is Abort]:
            seen = len(actions)
            for model in sorted({self._requests[abort.request].model for abort in fresh}):
                gone = [one.request for one in fresh if self._requests[one.request].model == model]
                self._services[model].let_go(gone, rank, actions)
            ended += fresh
        for abort in ended:
            del self.leaving[abort.request]
        return self._with_causes(ended, actions) if self._causes else ended

    def _with_causes(self, ended: list[Abort], actions: list[Action]) -> list[Abort]:
        """Name the cause in the aborts of this event."""
        told = {
            abort.request: replace(abort, reason=self._causes.pop(abort.request))
            for abort in ended
            if abort.request in self._causes
        }
        for place, action in enumerate(actions):
            if type(action) is Abort and action.request in told:
                actions[place] = told[action.request]
        return [told.get(abort.request, abort) for abort in ended]

    def forget(self) -> None:
        """Forget requests that have ended otherwise; with none left, nothing is looked at any more."""
        for request in [request for request in self.leaving if request not in self._requests]:
            del self.leaving[request]
            self._causes.pop(request, None)
        self._present.unsettled = bool(self.leaving)


def _rank(event: Event | None) -> float:
    if isinstance(event, Ran):
        return float(event.replica)
    return inf if isinstance(event, _AFTER_BOUNDARIES) else -1.0
