"""Instances come and go while requests migrate: coalesced = step by step, none is lost."""

from dataclasses import replace

import pytest

from serving.composition import MigrationParts
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.drawn_elastic_migrations import Played, check_world, drawn_world, play


def outcomes(played: Played) -> set[str]:
    return {record.outcome for record in played.records}


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 15, 41, 42, 91])
def test_every_request_ends_once_and_nothing_is_kept(seed: int) -> None:
    check_world(seed)


def test_requests_are_copied_while_their_destination_loads() -> None:
    """In these worlds some wait for it, and give way to another migration of their source."""
    assert outcomes(play(drawn_world(42))) >= {"superseded", "committed"}


def test_where_links_bring_nothing_none_moves_to_an_instance_that_loads() -> None:
    world = drawn_world(91)
    drawn = world.case.setting.migration
    assert drawn is not None

    def starved() -> MigrationParts:
        one = drawn()
        slow = {model: replace(rules, kv_bytes=KvBytes(1 << 60)) for model, rules in one.rules.items()}
        return replace(one, rules=slow)

    setting = replace(world.case.setting, migration=starved)
    played = play(replace(world, case=replace(world.case, setting=setting)))
    assert played.records and "committed" not in outcomes(played)
    assert any(record.stages for record in played.records)
