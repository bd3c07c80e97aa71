"""Which workers know which requests: whoever is to compute or keep something of one is told of it first."""

from realexec.messages import Forget
from realexec.tracking import Tracker
from realexec.world.slots import Slots


class Holders:
    """The slots that know a request, in the order in which they were told."""

    def __init__(self, slots: Slots, tracker: Tracker) -> None:
        self._slots = slots
        self._tracker = tracker
        self._of: dict[int, list[int]] = {}

    def hold(self, request: int, slot: int) -> None:
        """See to it that the worker of this slot knows the request."""
        held_by = self._of.setdefault(request, [])
        if slot not in held_by:
            held_by.append(slot)
            self._slots.send(slot, self._tracker.hold(request))

    def move(self, request: int, slot: int) -> None:
        """From now on it is this slot's alone, which is told of it anew."""
        self.keep_only(request, slot)
        self._of[request] = [slot]
        self._slots.send(slot, self._tracker.hold(request))

    def keep_only(self, request: int, slot: int) -> None:
        """All others forget what they have of it."""
        held_by = self._of.get(request, [])
        for other in held_by:
            if other != slot:
                self._slots.send(other, Forget(request))
        self._of[request] = [one for one in held_by if one == slot]

    def drop(self, request: int, slot: int) -> None:
        """This slot forgets it."""
        held_by = self._of.get(request, [])
        if slot in held_by:
            held_by.remove(slot)
            self._slots.send(slot, Forget(request))

    def end(self, request: int, slot: int | None = None) -> None:
        """It is over; ``slot``: where it ended, whose worker has forgotten it by itself."""
        for other in self._of.pop(request, []):
            if other != slot:
                self._slots.send(other, Forget(request))

    def lose(self, slot: int) -> None:
        """What a slot held is gone."""
        for held_by in self._of.values():
            if slot in held_by:
                held_by.remove(slot)
