"""Builds the migration of running requests from the configuration: policies and rules per model."""

from collections.abc import Mapping
from random import Random
from typing import cast

from policies.migration_victims import NextVictim
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.streams import seed_of
from servetwin.config.config import RunConfig
from servetwin.config.migration_config import LAST_STAGES, WITHIN_STEP, control_ms
from servetwin.config.policy.make import make_policy
from serving.composition import MigrationParts
from serving.kv.migration_rules import MigrationRules, Mode
from serving.services.colocated.victim_moves import VictimParts
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.replica import Replica

NS_PER_MS = 1_000_000
_MILLION = 1_000_000


def migration_of(
    config: RunConfig, estimates: Estimates, prototypes: Mapping[str, Replica]
) -> MigrationParts | None:
    """Return None if requests stay where they decode. UserError for a policy that cannot be made."""
    chosen, moving = config.system.migration, config.migration
    if chosen.name == "none":
        return None
    random = Random(seed_of(config.seed, "migration"))
    migrator = make_policy("system/migration", chosen, random=random, estimates=estimates)
    rules = {
        model.name: MigrationRules(
            mode=cast(Mode, moving.mode),
            last_stage_blocks=LAST_STAGES.get(moving.last_stage, 0),
            max_stages=moving.max_stages,
            control_ns=round(control_ms(moving, model.tp) * NS_PER_MS),
            kv_bytes=model.kv_bytes,
            max_num_seqs=config.engine.max_num_seqs,
            into_loading=moving.into_loading,
            slowdown_ppm=0 if config.kind == "realexec" else round(moving.slowdown * _MILLION),
            last_within_step=moving.last_stage == WITHIN_STEP,
        )
        for model in hosted_models(config)
    }
    victims = None
    if moving.victims == "neighbour":
        blocks = {model: reserve_blocks(config, replica) for model, replica in prototypes.items()}
        victims = VictimParts(NextVictim(), blocks)
    return MigrationParts(migrator, round(moving.period_ms * NS_PER_MS), rules, victims)


def reserve_blocks(config: RunConfig, replica: Replica) -> int:
    """Return how many blocks stay free on a replica while the next victim migrates, one at least."""
    return max(1, round(config.migration.reserve * replica.kv_blocks))
