"""What workers tell of peers that they lost, put off until it is known whether those died.

Who reads from a worker that is killed may know before the driver. The driver believes it once the worker's
own end has been told, which ends all that was under way with it, or the worker has said since that it runs:
then only the way to it broke.
"""

import time
from typing import Final

from realexec.messages import Fetched, FromWorker, Pulled, RoundsDone
from realexec.world.slots import Slots
from serving.vocabulary.units import NS_PER_S

# A worker says every half a second that it runs; an end is told at once.
LOOK_S: Final = 0.02
# Whoever is stopped is lost by then. What is left is a worker that runs and keeps its interpreter's lock.
PATIENCE_NS: Final = 10 * NS_PER_S
_READERS: Final = (Pulled, Fetched, RoundsDone)


class Doubts:
    """Only the driver's thread calls it."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._open: list[tuple[int, int, FromWorker]] = []  # since when, who told, what

    def __bool__(self) -> bool:
        return bool(self._open)

    def puts_off(self, slot: int, message: FromWorker) -> bool:
        """Whether what the worker of a slot tells is not to be believed yet; it is kept then."""
        if not isinstance(message, _READERS) or message.lost_peer is None:
            return False
        self._open.append((time.monotonic_ns(), slot, message))
        return True

    def settled(self) -> tuple[int, FromWorker] | None:
        """What is to be believed now, one at a time: (who told, what)."""
        for one in self._open:
            since_ns, slot, message = one
            assert isinstance(message, _READERS) and message.lost_peer is not None
            known = message.lost_peer in self._slots.dead
            known = known or self._slots.runs_since(message.lost_peer, since_ns)
            if known or time.monotonic_ns() - since_ns > PATIENCE_NS:
                self._open.remove(one)
                return slot, message
        return None
