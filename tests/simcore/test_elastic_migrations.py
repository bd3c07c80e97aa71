"""Instances come and go while requests migrate: coalesced = step by step, none is lost."""

import pytest

from tests.worlds.drawn_elastic_migrations import Played, check_world


def outcomes(played: Played) -> set[str]:
    return {record.outcome for record in played.records}


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 15, 37])
def test_every_request_ends_once_and_nothing_is_kept(seed: int) -> None:
    check_world(seed)
