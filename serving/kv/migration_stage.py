"""Decides what a stage of a migration sends, all remaining KV or only full blocks, and checks for room."""

from collections.abc import Mapping

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState
from serving.kv.migration_rules import Migration, MigrationPhase, MigrationRules
from serving.vocabulary.actions import Action


def may_begin(source: Engine, destination: Engine, rules: MigrationRules, waits: bool) -> bool:
    """Whether the source will reach a boundary and the destination may take the KV.

    ``waits``: the source is already in a migration that waits for a loading destination. That migration gives
    way to one with a destination that does not load.
    """
    loading = destination.state is EngineState.LOADING
    return source.state in AT_WORK and not (loading and (waits or not rules.into_loading))


def engaged(under_way: Mapping[int, Migration], replica: int) -> bool:
    """Whether no other migration can begin there; one that waits for a load gives way at its source."""
    migration = under_way.get(replica)
    return migration is not None and not (
        migration.phase is MigrationPhase.WAITING and migration.source == replica
    )


def is_last(migration: Migration, rules: MigrationRules, computed: int, block: int) -> bool:
    """Whether the next stage is the last: little is left to copy, or less than one full block."""
    left = computed - migration.sent_tokens
    if rules.mode == "stop_and_copy" or left < block:
        return True
    if migration.stages == 0:
        return False
    if rules.last_within_step:
        return takes_half_a_step(migration, computed) or migration.stages + 1 == rules.max_stages
    return -(-left // block) <= rules.last_stage_blocks


def takes_half_a_step(migration: Migration, computed: int) -> bool:
    """Whether what is left takes at most half a decode step to copy, at the rate of the latest stage.

    That stage copied its positions in as many steps as the request has got tokens since. The other half of
    the step is for the messages of the last stage. Only counts decide, so every replay decides the same.
    """
    steps = computed - migration.computed_tokens
    left = computed - migration.sent_tokens
    return 2 * left * steps <= migration.copied_tokens


def has_room(destination: Engine, rules: MigrationRules, request: int, tokens: int) -> bool:
    """Whether it has blocks for this many positions besides the current step's, and a place in its batch."""
    ledger = destination.ledger
    more = ledger.blocks_for(tokens) - ledger.held_blocks(request)
    decoding = len(destination.running) + len(destination.attached) - len(destination.ended)
    free = ledger.free_blocks - ledger.step_blocks() - ledger.watermark_blocks
    return more <= free and decoding < rules.max_num_seqs


def leave_without_kv(
    source: Engine, destination: Engine, request: int, coalesce: bool, actions: list[Action]
) -> None:
    """Move a request without KV: it waits first at the destination to be recomputed; the source runs on."""
    progress = boundary.pause(source, request, "it is computed again elsewhere", actions)
    source.detach((progress,))
    boundary.let_run(source, coalesce)
    boundary.requeue(destination, progress)
