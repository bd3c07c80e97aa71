"""Requests move between decode instances: coalesced = step by step, none is lost, nothing is kept."""

from dataclasses import replace

import pytest

from serving.composition import MigrationParts
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.drawn_decode_migrations import World, check_world, drawn_world, play
from tests.worlds.drawn_elastic import assert_repeats_and_replays

SEEDS = [2, 11, 33, 34, 41, 159]
BUSY = 11


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_ends_once_and_no_room_is_kept(seed: int) -> None:
    check_world(seed)


def with_rules(world: World, **changes: object) -> World:
    """The same with other rules of migration."""
    setting = world.case.setting
    assert setting.migration is not None
    drawn = setting.migration

    def migration() -> MigrationParts:
        one = drawn()
        return replace(one, rules={model: replace(rules, **changes) for model, rules in one.rules.items()})

    return replace(world, case=replace(world.case, setting=replace(setting, migration=migration)))


def test_where_links_bring_nothing_no_migration_commits() -> None:
    """A token of KV takes hours on the wire: all that is sent is aborted, and everybody is served."""
    world = with_rules(drawn_world(BUSY), mode="live", kv_bytes=KvBytes(1 << 60))
    played = play(world)
    assert not any(record.outcome == "committed" for record in played.records)
    assert any(record.stages for record in played.records)
    assert len(played.recorder.done) == len(world.case.requests)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_same_world_gives_the_same_journal_and_replays(seed: int) -> None:
    world = drawn_world(seed)
    first, again = play(world), play(world)
    assert any(record.outcome == "committed" for record in first.records)
    assert_repeats_and_replays(first.checked.lines, again.checked.lines, world.case.setting.controller())
