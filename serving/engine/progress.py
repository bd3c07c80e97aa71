"""Where a replica stands, and how far each of its requests is."""

from enum import IntEnum
from typing import Literal

from serving.vocabulary.request import Request

Order = Literal["fcfs", "priority", "before_last"]
"""In which requests wait: see ``serving.engine.waiting``."""


class EngineState(IntEnum):
    """Where the replica stands between two facts."""

    IDLE = 0
    RUNNING = 1
    STOPPING = 2
    LOST = 3
    LOADING = 4
    VACANT = 5


# A report will follow.
AT_WORK = (EngineState.RUNNING, EngineState.STOPPING)
# It takes no requests.
GONE = (EngineState.LOST, EngineState.VACANT)


class Progress:
    """How far one request is; ``known_tokens`` (prompt and generated) stands still while it decodes.

    ``was_preempted``: it was here before, and something of it may still be stored. ``number``: in order of
    admission; 0 for one that came with its KV. ``priority``: 0 where engines do not look at it. ``moved``: it
    began at another instance and is computed again here. ``passes_last``: where it is queued up the last one
    lets it pass. ``swapped``: its KV is in host memory.
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
