"""How far the abort of a request is whose client has gone away, or whose instance may serve no longer."""

from enum import IntEnum
from typing import Final

# The reason of the actions that let it go.
CLIENT_LEFT: Final = "its client left"
GRACE_OVER: Final = "the grace period of its instance ended"


class AbortState(IntEnum):
    """``HELD``: its layers run or its KV moves, and it leaves when that is over; ``LEAVING``: it leaves at
    the next boundary of its instance; ``GONE``: nothing of it is left.
    """

    HELD = 0
    LEAVING = 1
    GONE = 2
