"""Records how migrations ended, and counts pairs of instances for which no request was chosen."""

from serving.kv.migration_rules import Migration
from serving.vocabulary.fact import fact

COMMITTED = "committed"


@fact
class MigrationRecord:
    """An ended migration for which a request had been chosen.

    ``outcome``: ``committed``, or why the migration was aborted. ``context_tokens``: the request's context
    length when the migration began. ``stages``: number of copying stages that were begun. ``moved_bytes``: KV
    bytes sent, whether or not the destination used them. ``down_ns``: how long the request was in no batch,
    -1 if it never left the source's batch.
    """

    request: int
    source: int
    destination: int
    begun_ns: int
    ended_ns: int
    context_tokens: int
    stages: int
    moved_bytes: int
    down_ns: int
    outcome: str


class MigrationLog:
    """``records``: ended migrations, in the order of their ends.

    ``declined``: number of pairs (source, destination) for which no request was chosen.
    """

    __slots__ = ("declined", "records")

    def __init__(self) -> None:
        self.records: list[MigrationRecord] = []
        self.declined = 0

    def add(self, migration: Migration, outcome: str, now_ns: int) -> None:
        """Record a migration that has ended."""
        self.records.append(
            MigrationRecord(
                migration.request,
                migration.source,
                migration.destination,
                begun_ns=migration.begun_ns,
                ended_ns=now_ns,
                context_tokens=migration.context_tokens,
                stages=migration.stages,
                moved_bytes=migration.moved_bytes,
                down_ns=now_ns - migration.paused_ns if migration.paused_ns >= 0 else -1,
                outcome=outcome,
            )
        )
