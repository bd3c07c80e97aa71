"""KV blocks that migrations of running requests give back, and to whom the requests belong then.

A migration ends in the middle of runs of its two instances, where a coalesced run does not know how many
steps they have behind them; but it is known what changes: what was kept for it when its last stage began.
"""

from collections.abc import Mapping

from serving.engine.engine import Engine
from serving.engine.progress import GONE
from serving.vocabulary.actions import Detach, Migrate, Send

# (engine, blocks more, requests more that take a token's place per step).
Change = tuple[int, int, int]


class MigratedBlocks:
    """Of migrations under way: blocks at source and destination when the latest stage began.

    Both ends have ended a step then, in a coalesced run as in an exact one, and a request that is copied
    decodes on at its source alone.
    """

    def __init__(self, engines: Mapping[int, Engine]) -> None:
        self._engines = engines
        self._begun: set[int] = set()
        self._held: dict[int, tuple[int, int]] = {}
        self._paused: set[int] = set()

    def begun(self, told: Migrate) -> None:
        """A request is to leave its instance."""
        self._begun.add(told.request)

    def is_stage(self, send: Send) -> bool:
        """Whether it is KV of a request that migrates: each of its stages is one send of it alone."""
        return send.requests[0] in self._begun

    def stage(self, send: Send) -> None:
        """A stage begins."""
        (request,) = send.requests
        source, target = self._engines[send.source], self._engines[send.target]
        self._held[request] = (source.ledger.held_blocks(request), target.ledger.held_blocks(request))

    def paused(self, detach: Detach) -> None:
        """It has left its batch for the last stage, and keeps its blocks there."""
        self._paused.add(detach.request)

    def ended(self, told: Migrate) -> list[Change]:
        """What has changed on instances that are still there; nothing if no stage had begun."""
        held, paused = self._held.pop(told.request, None), told.request in self._paused
        self._paused.discard(told.request)
        self._begun.discard(told.request)
        if held is None:
            return []
        if told.phase == "committed":
            changes = [(told.source, -held[0], 0), (told.target, 0, 1)]
        else:
            changes = [(told.target, -held[1], 0), (told.source, 0, int(paused))]
        return [one for one in changes if any(one[1:]) and self._engines[one[0]].state not in GONE]
