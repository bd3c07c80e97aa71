"""The rules of migrations, their phases, and the reasons for aborting one."""

from enum import IntEnum
from typing import Final, Literal, Protocol

from serving.kv.moves import Move
from serving.vocabulary.fact import fact
from serving.vocabulary.kv_bytes import KvBytes

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
CLIENT_LEFT: Final = "client left"
SUPERSEDED: Final = "superseded"  # while it waited for a destination that still loads
CAUSES: Final = (
    FINISHED, PREEMPTED, REFUSED, STAGES, STOPPED, SOURCE_LOST, DESTINATION_LOST, DESTINATION_LEFT,
)  # fmt: skip


class MigrationPhase(IntEnum):
    """The phase of a migration. ``PREPARING``: both ends run to a boundary; ``COPYING``: a stage is in
    transfer, the request decodes; ``LAST_STAGE``: it is in no batch; ``RECOMPUTING``: the destination
    recomputes its KV; ``WAITING``: one stage is copied, it decodes at the source, and the destination still
    loads.
    """

    PREPARING = 0
    COPYING = 1
    LAST_STAGE = 2
    RECOMPUTING = 3
    COMMITTED = 4
    ABORTED = 5
    WAITING = 6


# In these phases the ends halt at boundaries; for a recomputed request only the destination does.
HALTING: Final = (MigrationPhase.PREPARING, MigrationPhase.RECOMPUTING)


@fact
class MigrationRules:
    """Rules of one model's migrations. ``last_stage_blocks``: the most that are left for the last stage.

    ``last_within_step``: instead, what is left for it takes at most half a decode step to copy. A live
    migration has one stage only if less than a block is to be copied. ``max_stages``: one stage more
    aborts. ``control_ns``: time of the last stage besides its bytes. ``kv_bytes``: what a sequence has
    whatever its context changes with every token, so it is sent with the last stage. ``max_num_seqs``:
    requests that decode on one instance. ``into_loading``: a destination may still be loading; one stage is
    copied before it has its parameters. ``slowdown_ppm``: during a stage, steps of both ends take this many
    millionths longer.
    """

    mode: Mode
    last_stage_blocks: int
    max_stages: int
    control_ns: int
    kv_bytes: KvBytes
    max_num_seqs: int = 1 << 30
    into_loading: bool = False
    slowdown_ppm: int = 0
    last_within_step: bool = False


class MigrationHost(Protocol):
    """The service whose requests migrate."""

    def choose(self, source: int, destination: int) -> tuple[int, str] | None:
        """The request that leaves the source, which is between two steps, and why; None: no request."""

    def keep(self, request: int, destination: int) -> bool:
        """Before anything is sent: reserve room for all tokens of the request; False: there is none."""

    def drop(self, request: int, destination: int) -> None:
        """The request does not come: release the room reserved for it."""

    def handed_over(self, request: int, source: int, destination: int) -> None:
        """The request now belongs to the destination, in the room reserved for it."""


class Migration:
    """One migration. ``request`` -1: none is chosen yet. ``sent_tokens``: positions sent or in transfer.

    ``copied_tokens``: positions of the latest stage. ``computed_tokens``: positions that the source had when
    it began. ``awaited``: ends that have not reached a boundary yet. ``kept``: room at the destination is
    reserved for it in addition to that at the source.
    """

    __slots__ = (
        "awaited", "begun_ns", "computed_tokens", "context_tokens", "copied_tokens", "destination", "kept",
        "move", "moved_bytes", "paused_ns", "phase", "reason", "request", "sent_tokens", "source", "stages",
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
        self.copied_tokens = self.computed_tokens = 0
        self.begun_ns = self.paused_ns = -1
