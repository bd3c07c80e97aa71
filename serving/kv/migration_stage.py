"""What a stage of a migration sends, all that is left or full blocks alone, and whether there is room."""

from collections.abc import Mapping

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState
from serving.kv.migration_rules import Migration, MigrationPhase, MigrationRules
from serving.vocabulary.actions import Action


def may_begin(source: Engine, destination: Engine, rules: MigrationRules, waits: bool) -> bool:
    """Whether a boundary of the source will come, and the destination may take what is copied.

    ``waits``: a request of the source waits for one that loads already, and gives way to one that does not.
    """
    loading = destination.state is EngineState.LOADING
    return source.state in AT_WORK and not (loading and (waits or not rules.into_loading))


def engaged(under_way: Mapping[int, Migration], replica: int) -> bool:
    """Whether no other migration can begin there; one that waits for a load gives way at its source."""
    one = under_way.get(replica)
    return one is not None and not (one.phase is MigrationPhase.WAITING and one.source == replica)


def is_last(migration: Migration, rules: MigrationRules, computed: int, block: int) -> bool:
    """Whether the request stops now: little is left to copy, or no full block is there to begin with."""
    left = -(-(computed - migration.sent_tokens) // block)
    if rules.mode == "stop_and_copy" or computed - migration.sent_tokens < block:
        return True
    return left <= rules.last_stage_blocks and migration.stages > 0


def has_room(destination: Engine, rules: MigrationRules, request: int, tokens: int) -> bool:
    """Whether it has blocks for so many positions beside the step under way, and a place in its batch."""
    ledger = destination.ledger
    more = ledger.blocks_for(tokens) - ledger.held_blocks(request)
    decoding = len(destination.running) + len(destination.attached) - len(destination.ended)
    free = ledger.free_blocks - ledger.step_blocks() - ledger.watermark_blocks
    return more <= free and decoding < rules.max_num_seqs


def leave_without_kv(
    source: Engine, destination: Engine, request: int, coalesce: bool, actions: list[Action]
) -> None:
    """It waits at the destination before all others, to be computed again; the source runs on."""
    progress = boundary.pause(source, request, "it is computed again elsewhere", actions)
    source.detach((progress,))
    boundary.let_run(source, coalesce)
    boundary.requeue(destination, progress)
