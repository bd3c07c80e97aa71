"""How cases are drawn by chance: always the same ones, or new ones where ``make draw`` names a seed.

The same wherever and beside whatever else a test runs: hypothesis takes some of its numbers from constants of
all modules imported so far, which depend on the other tests of the process; that is switched off.
"""

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

SEED_VARIABLE = "SERVETWIN_DRAW"
UNTIL_VARIABLE = "SERVETWIN_DRAW_UNTIL"  # seconds since 1970
DRAWN_ANEW: str | None = os.environ.get(SEED_VARIABLE)  # the seed of new cases, if new ones are wanted


def set_up_hypothesis() -> None:
    """No clock and no memory of earlier runs: neither a slow machine nor a left folder changes the cases."""
    vars(providers)["_get_local_constants"] = lambda: providers._local_constants
    settings.register_profile(
        "servetwin",
        derandomize=DRAWN_ANEW is None,
        database=None,
        deadline=None,
        max_examples=40,  # make draw draws others, pass after pass
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("servetwin")


def drawn_seeds(fixed: Sequence[int]) -> Sequence[int]:
    """These seeds, or as many new ones; the test that takes them is marked ``drawn``."""
    if DRAWN_ANEW is None:
        return fixed
    random = Random(f"seeds of {DRAWN_ANEW}")
    return [random.getrandbits(31) for _ in fixed]


def on_drawn_seeds(fixed: Sequence[int]) -> Callable[[Any], Any]:
    """The test takes ``seed``, once each."""

    def decorate(test: Any) -> Any:
        return pytest.mark.drawn(pytest.mark.parametrize("seed", drawn_seeds(fixed))(test))

    return decorate
