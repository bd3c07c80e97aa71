"""Error of expert times from two unknowns: which experts tokens choose, and how engines exchange."""

import re
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from hwmodels.step_times.expert_rows import GroupTimes
from hwmodels.step_times.expert_times import ExpertTimes
from hwmodels.step_times.step_error import ROUGH_SHARE, StepError, StepErrors

# At this skew the times here match AIConfigurator's tables of loads drawn from its power laws (exponents 1.01
# and 1.2, which stand in for real popularity there) without bias: -1.7 to +0.2 % for 4 to 192 tokens on one
# H100 and one RTX PRO 6000, where equal popularity is 7 to 9 % slower (tests/hwmodels/test_expert_tables.py).
POWER_LAW_SKEW: Final = 0.7
_EXPERTS_P95: Final = re.compile(r"experts [0-9.]+ / ([0-9.]+) %")
_UNJUDGED_PERCENT: Final = 10.0  # the worst p95 of the experts of the composed profiles, rounded up
_SIZES: Final = tuple(1 << power for power in range(15))


def other_skew(skew: float) -> float:
    """The other plausible extreme: skewed if popularity is equal, equal if it is skewed."""
    return POWER_LAW_SKEW if skew < POWER_LAW_SKEW else 0.0


def routing_errors(
    times: ExpertTimes, other: ExpertTimes, dense_s: Callable[[int], float], largest: tuple[int, int]
) -> StepErrors:
    """Errors of whole steps, with experts in ``dense_s``. ``largest`` tokens: with and without prompts."""
    last_prefill, last_decode = largest

    def error(first: int, last: int) -> StepError:
        sizes = [size for size in _SIZES if first <= size <= last]
        return _between([1.0 + (other.seconds(n) - times.seconds(n)) / dense_s(n) for n in sizes])

    return StepErrors(error(256, last_prefill), error(1, last_decode), error(64, last_prefill))


def group_ends_s(times: ExpertTimes, other: ExpertTimes, error_band: str) -> tuple[GroupTimes, GroupTimes]:
    """Lowest and highest seconds of the part that engines do together.

    Expert times within their held-out p95 and between both popularities, the exchange within a factor of 2.
    """
    judged = _EXPERTS_P95.search(error_band)
    share = 1.0 + (float(judged.group(1)) if judged else _UNJUDGED_PERCENT) / 100.0
    both = times.experts_s, other.experts_s
    low = GroupTimes(np.minimum(*both) / share, times.moved_s / (1.0 + ROUGH_SHARE))
    return low, GroupTimes(np.maximum(*both) * share, times.moved_s * (1.0 + ROUGH_SHARE))


def _between(ratios: Iterable[float]) -> StepError:
    knots = [*ratios, 1.0]
    source = "tokens choose experts alike, or as AIConfigurator's power-law loads have them"
    return StepError(min(knots), max(knots), "assumed", source)
