"""What a stage of a migration sends: all that is left or full blocks alone, and whether there is room for it."""

from serving.engine.engine import Engine
from serving.kv.migration_rules import Migration, MigrationRules


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
