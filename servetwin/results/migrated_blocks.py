"""KV blocks that migrations of running requests free, and the instance that then has the request.

A migration ends in the middle of runs of its two instances, when a coalesced run's number of finished steps
is unknown. The change is known: the blocks that the request held when the migration's last stage began.
"""

from collections.abc import Mapping

from serving.engine.engine import Engine
from serving.engine.progress import GONE
from serving.vocabulary.actions import Detach, Migrate, Send

# (engine, additional blocks, additional requests that take one token's space per step).
Change = tuple[int, int, int]


class MigratedBlocks:
    """Migrations in progress: blocks at source and destination when the latest stage began.

    At that time both ends have just finished a step, in coalesced and exact runs. A request that is being
    copied decodes only at its source.
    """

    def __init__(self, engines: Mapping[int, Engine]) -> None:
        self._engines = engines
        self._begun: set[int] = set()
        self._held: dict[int, tuple[int, int]] = {}
        self._paused: set[int] = set()

    def begun(self, action: Migrate) -> None:
        """Record that a request's migration began."""
        self._begun.add(action.request)

    def is_stage(self, send: Send) -> bool:
        """Return whether the KV is a migrating request's: each of its stages is one send of it alone."""
        return send.requests[0] in self._begun

    def stage(self, send: Send) -> None:
        """Record the blocks at the start of a stage."""
        (request,) = send.requests
        source, target = self._engines[send.source], self._engines[send.target]
        self._held[request] = (source.ledger.held_blocks(request), target.ledger.held_blocks(request))

    def paused(self, detach: Detach) -> None:
        """Record that the request left its batch for the last stage; its blocks stay there."""
        self._paused.add(detach.request)

    def ended(self, action: Migrate) -> list[Change]:
        """Return the changes on instances that still exist; empty if no stage had begun."""
        held, paused = self._held.pop(action.request, None), action.request in self._paused
        self._paused.discard(action.request)
        self._begun.discard(action.request)
        if held is None:
            return []
        if action.phase == "committed":
            changes = [(action.source, -held[0], 0), (action.target, 0, 1)]
        else:
            changes = [(action.target, -held[1], 0), (action.source, 0, int(paused))]
        return [
            change for change in changes if any(change[1:]) and self._engines[change[0]].state not in GONE
        ]
