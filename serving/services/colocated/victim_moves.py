"""Migrates requests with their KV instead of preempting them, while memory lasts.

If the next step would leave fewer free blocks than a reserve, a policy is asked for a destination for the
request to be preempted next. The reserve holds what is decoded while KV is copied. If it is too small, the
request is preempted as usual and its migration aborted. Runs end where the reserve begins
(``policies.migration_victims.StopsAtReserve``), so coalesced and step-by-step runs ask at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.kv.migration import Migrations
from serving.protocols.migration import Migrator, Pair
from serving.vocabulary.actions import Action
from serving.vocabulary.current_event import Present


@dataclass(frozen=True, slots=True)
class VictimParts:
    """``migrator``: the policy, called for each instance in ``nearly_full``.

    ``reserve_blocks``: for each model, the number of free blocks below which memory is nearly full.
    """

    migrator: Migrator
    reserve_blocks: Mapping[str, int]


class VictimMoves:
    """Victim migrations of one model, at most one per source instance and ``period_ns``."""

    __slots__ = (
        "_again_ns", "_migrations", "_migrator", "_pairs", "_period_ns", "_present", "_reserve_blocks",
        "_sources",
    )  # fmt: skip

    def __init__(
        self,
        migrator: Migrator,
        *,
        reserve_blocks: int,
        pairs: Callable[[Migrator, int], Sequence[Pair]],
        migrations: Migrations,
        present: Present,
        period_ns: int,
    ) -> None:
        """``pairs``: calls a policy for an instance whose memory is nearly full."""
        self._migrator, self._reserve_blocks, self._pairs = migrator, reserve_blocks, pairs
        self._migrations, self._present, self._period_ns = migrations, present, period_ns
        self._again_ns: dict[int, int] = {}
        self._sources: set[int] = set()

    def look(self, engine: Engine, actions: list[Action]) -> None:
        """Check an instance that is in no migration, has reported, and has begun its next pass."""
        ledger, now_ns = engine.ledger, self._present.now_ns
        if not ledger.decoding or ledger.steps_until_full(self._reserve_blocks):
            return
        if now_ns < self._again_ns.get(engine.id, 0):
            return
        self._again_ns[engine.id] = now_ns + self._period_ns
        for pair in self._pairs(self._migrator, engine.id):
            self._sources.add(pair.source)
            self._migrations.begin(pair, actions, float(engine.id))

    def take_migrator(self, source: int) -> Migrator | None:
        """The policy that chooses the request to migrate, if the migration from ``source`` began here."""
        if source not in self._sources:
            return None
        self._sources.remove(source)
        return self._migrator

    def forget(self, source: int) -> None:
        """Another migration from the source begins."""
        self._sources.discard(source)
