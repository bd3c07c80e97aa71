"""Models in stages in drawn worlds, with and without losses."""

import pytest

from tests.worlds.drawn_stages import check_drawn


@pytest.mark.parametrize("seed", range(15))
def test_drawn_stages(seed: int) -> None:
    check_drawn(seed, losses=False)


@pytest.mark.parametrize("seed", range(25))
def test_drawn_stages_with_losses(seed: int) -> None:
    check_drawn(seed, losses=True)


def test_the_worlds_with_losses_lose_something_that_begins_again() -> None:
    runs = [check_drawn(seed, losses=True) for seed in range(20)]
    begun_again = [
        found
        for found in runs
        for model in found.controller.services
        if len({(row["request"], row["stage"]) for row in found.log(model)}) < len(found.log(model))
    ]
    assert begun_again
