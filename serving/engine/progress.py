"""The state of a replica, and the progress of each of its requests."""

from collections.abc import Callable
from enum import IntEnum
from typing import Literal

from serving.vocabulary.request import Request

Order = Literal["fcfs", "priority", "before_last"]
"""The order in which requests wait: see ``serving.engine.waiting``."""


class EngineState(IntEnum):
    """The state of the replica between two events."""

    IDLE = 0
    RUNNING = 1
    STOPPING = 2
    LOST = 3
    LOADING = 4
    VACANT = 5


# A report will follow.
AT_WORK = (EngineState.RUNNING, EngineState.STOPPING)
# The replica takes no requests.
GONE = (EngineState.LOST, EngineState.VACANT)


class Progress:
    """Progress of one request; ``known_tokens`` (prompt and generated) is constant while it decodes.

    ``was_preempted``: it ran here before, and some of its KV may still be stored. ``number``: in order of
    admission; 0 for a request that arrived with its KV. ``priority``: 0 if engines ignore it. ``moved``: it
    began at another instance and is recomputed here. ``passes_last``: when queued it goes before the last
    waiting request. ``swapped``: its KV is in host memory.
    """

    __slots__ = (
        "arrival_ns", "computed", "id", "known_tokens", "moved", "number", "passes_last", "priority",
        "shared_prefix", "swapped", "was_preempted",
    )  # fmt: skip

    def __init__(self, request: Request, order: Order = "fcfs") -> None:
        self.id = request.id
        self.priority = request.priority if order == "priority" else 0
        self.passes_last = order == "before_last" and request.priority > 0
        self.arrival_ns = request.arrival_ns
        self.known_tokens = request.prompt_tokens
        self.computed = 0
        self.shared_prefix = request.shared_prefix
        self.was_preempted = self.moved = self.swapped = False
        self.number = 0


# Told which request has left a replica because its client went away, before the next pass is chosen.
Leaver = Callable[[int, Progress], None]
