"""What a migration is: its rules, its phases, and why one may be aborted."""

from enum import IntEnum
from typing import Final, Literal, Protocol

from serving.kv.moves import Move
from serving.vocabulary.fact import fact

Mode = Literal["live", "stop_and_copy", "recompute"]
# Why a migration was aborted: ``MigrationRecord.outcome``.
FINISHED: Final = "finished"
PREEMPTED: Final = "preempted"
REFUSED: Final = "refused"
STAGES: Final = "stages"
STOPPED: Final = "transfer stopped"
SOURCE_LOST: Final = "source lost"
DESTINATION_LOST: Final = "destination lost"
DESTINATION_LEFT: Final = "destination left"
SUPERSEDED: Final = "superseded"  # while it waited for its destination, which still loads
CAUSES: Final = (
    FINISHED, PREEMPTED, REFUSED, STAGES, STOPPED, SOURCE_LOST, DESTINATION_LOST, DESTINATION_LEFT,
)  # fmt: skip


class MigrationPhase(IntEnum):
    """``PREPARING``: both ends come to a boundary; ``COPYING``: a stage is on the wire, the request decodes;
    ``LAST_STAGE``: it is in no batch; ``RECOMPUTING``: the destination computes its KV again; ``WAITING``:
    what the source had is copied, it decodes there, and the destination still loads.
    """

    PREPARING = 0
    COPYING = 1
    LAST_STAGE = 2
    RECOMPUTING = 3
    COMMITTED = 4
    ABORTED = 5
    WAITING = 6


# In these the ends halt at boundaries, of a request that is computed again the destination alone.
HALTING: Final = (MigrationPhase.PREPARING, MigrationPhase.RECOMPUTING)


@fact
class MigrationRules:
    """``last_stage_blocks``: at most so many are left for the last stage, which is never the first one.

    ``max_stages``: one more aborts. ``control_ns``: what the last stage takes beside its bytes.
    ``kv_bytes_per_token``: on all ranks; ``max_num_seqs``: that decode on one instance. ``into_loading``: a
    destination may be one that still loads; one stage is copied before it has its parameters.
    ``slowdown_ppm``: while a stage is copied steps of both ends take so many millionths longer.
    """

    mode: Mode
    last_stage_blocks: int
    max_stages: int
    control_ns: int
    kv_bytes_per_token: int
    max_num_seqs: int = 1 << 30
    into_loading: bool = False
    slowdown_ppm: int = 0


class MigrationHost(Protocol):
    """The service whose requests migrate."""

    def choose(self, source: int, destination: int) -> tuple[int, str] | None:
        """The source is between two steps: who leaves, and why; None: nobody."""

    def keep(self, request: int, destination: int) -> bool:
        """Before anything is sent: is there room for all that it may write? Then that is kept."""

    def drop(self, request: int, destination: int) -> None:
        """It does not come: that room is given back."""

    def handed_over(self, request: int, source: int, destination: int) -> None:
        """A request is the destination's, in the room that was kept for it."""


class Migration:
    """One. ``request`` -1: nobody was chosen yet. ``sent_tokens``: positions that have gone, or go now.

    ``awaited``: ends that have not come to a boundary yet. ``kept``: there is room for it at the destination
    alone, beside that at the source.
    """

    __slots__ = (
        "awaited", "begun_ns", "context_tokens", "destination", "kept", "move", "moved_bytes", "paused_ns",
        "phase", "reason", "request", "sent_tokens", "source", "stages",
    )  # fmt: skip

    def __init__(self, source: int, destination: int, reason: str) -> None:
        self.source = source
        self.destination = destination
        self.reason = reason
        self.request = -1
        self.phase: MigrationPhase = MigrationPhase.PREPARING
        self.awaited: set[int] = set()
        self.kept = False
        self.move: Move | None = None
        self.stages = self.sent_tokens = self.moved_bytes = self.context_tokens = 0
        self.begun_ns = self.paused_ns = -1
