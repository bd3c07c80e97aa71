"""Which workers hold which requests: a worker receives a request before it computes or stores any of it."""

from realexec.wire.messages import Forget
from realexec.world.slots import Slots
from realexec.world.tracking import Tracker


class Holders:
    """The slots that hold each request, in the order in which they received it."""

    def __init__(self, slots: Slots, tracker: Tracker) -> None:
        self._slots = slots
        self._tracker = tracker
        self._of: dict[int, list[int]] = {}

    def hold(self, request: int, slot: int) -> None:
        """Send the request to the worker of this slot, unless it holds it already."""
        held_by = self._of.setdefault(request, [])
        if slot not in held_by:
            held_by.append(slot)
            self._slots.send(slot, self._tracker.hold(request))

    def move(self, request: int, slot: int) -> None:
        """Make this slot the request's only holder, and send the request to it again."""
        self.keep_only(request, slot)
        self._of[request] = [slot]
        self._slots.send(slot, self._tracker.hold(request))

    def keep_only(self, request: int, slot: int) -> None:
        """Have all other workers drop the request."""
        held_by = self._of.get(request, [])
        for other in held_by:
            if other != slot:
                self._slots.send(other, Forget(request))
        self._of[request] = [holder for holder in held_by if holder == slot]

    def drop(self, request: int, slot: int) -> None:
        """Have this slot's worker drop the request."""
        held_by = self._of.get(request, [])
        if slot in held_by:
            held_by.remove(slot)
            self._slots.send(slot, Forget(request))

    def end(self, request: int, slot: int | None = None) -> None:
        """End the request; ``slot``: where it ended, whose worker has dropped it by itself."""
        for other in self._of.pop(request, []):
            if other != slot:
                self._slots.send(other, Forget(request))

    def lose(self, slot: int) -> None:
        """Note that a lost slot holds nothing."""
        for held_by in self._of.values():
            if slot in held_by:
                held_by.remove(slot)
