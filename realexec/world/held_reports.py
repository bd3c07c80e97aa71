"""Workers' reports of lost peers, held back until the driver knows whether those peers died.

A worker that reads from a killed peer may notice before the driver does. The driver accepts its report once
the peer's own exit has been reported, which ends everything in progress with it. It also accepts it once the
peer has sent a heartbeat since then: in that case only the connection to the peer broke.
"""

import time
from typing import Final

from realexec.wire.messages import Fetched, FromWorker, Pulled, RoundsDone
from realexec.world.slots import Slots
from serving.vocabulary.units import NS_PER_S

# A worker sends a heartbeat every half second; its exit is reported at once.
LOOK_S: Final = 0.02
# By then a stopped worker is lost. Any other is a worker that runs but keeps its interpreter lock.
PATIENCE_NS: Final = 10 * NS_PER_S
_READERS: Final = (Pulled, Fetched, RoundsDone)


class HeldReports:
    """The reports held back. Only the driver's thread calls it."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._open: list[tuple[int, int, FromWorker]] = []  # (time in ns, reporting slot, message)

    def __bool__(self) -> bool:
        return bool(self._open)

    def puts_off(self, slot: int, message: FromWorker) -> bool:
        """Whether this message must be held back; it is stored if so."""
        if not isinstance(message, _READERS) or message.lost_peer is None:
            return False
        self._open.append((time.monotonic_ns(), slot, message))
        return True

    def settled(self) -> tuple[int, FromWorker] | None:
        """Return one message that can be accepted now, as (slot that sent it, message), or None."""
        for one in self._open:
            since_ns, slot, message = one
            assert isinstance(message, _READERS) and message.lost_peer is not None
            known = message.lost_peer in self._slots.dead
            known = known or self._slots.runs_since(message.lost_peer, since_ns)
            if known or time.monotonic_ns() - since_ns > PATIENCE_NS:
                self._open.remove(one)
                return slot, message
        return None
