"""Settings of a sweep in which no seed changes the run: found before anything runs, from what draws.

A drawn trace, steps that draw on a recorded one, policies with a random stream, drawn faults, and stages
with drawn times depend on the seed. Where none of them is, the run of one seed is that of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import HardwareError
from servetwin.assemble.workload import selected
from servetwin.config.compose.compose import load_config
from servetwin.config.config import PolicyConfig, RunConfig
from servetwin.config.models_config import ONE
from servetwin.config.policy.policy_class import attribute, find_modules_here
from servetwin.config.trace_config import TraceConfig
from servetwin.sweeps.points import Point
from servetwin.sweeps.table import Values, setting_of
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

_MOST_SETTINGS: Final = 512  # in about 2 s; of more, every seed is run
# Steps of TraceConfig that draw by the seed, also on a recorded trace.
_DRAWING: Final = (
    "lengths", "length_ratio", "rate_scale", "utilization", "prefill_share", "peak_share", "resample",
    "clients", "high_priority_share",
)  # fmt: skip
_READ: Final = ("arrival_ns", "prompt_tokens", "output_tokens")


def same_by_seed(points: Sequence[Point]) -> dict[int, int]:
    """Map the place of every point that repeats another one under a later seed to the place of that one."""
    by_setting: dict[Values, list[Point]] = {}
    for point in points:
        by_setting.setdefault(setting_of(point), []).append(point)
    if len(by_setting) == len(points) or len(by_setting) > _MOST_SETTINGS:
        return {}
    known = dict[str, bool]()
    return {
        other.place: first.place
        for first, *others in by_setting.values()
        if _is_same(first.words, known)
        for other in others
    }


def _is_same(words: tuple[str, ...], known: dict[str, bool]) -> bool:
    """Return whether every seed gives the run of these words; False where that cannot be told.

    ``known``: of traces, whether their requests are drawn.
    """
    try:
        config = load_config([*words, "out=none"], "simulate")
        if config.models != ONE or _draws_while_running(config):
            return False
        trace = repr(config.trace)
        if trace not in known:
            known[trace] = _draws_requests(config.trace)
        return not known[trace]
    except (UserError, HardwareError, TraceError):
        return False  # it is reported as this point's own


def _draws_while_running(config: RunConfig) -> bool:
    system = config.system
    policies = [system.dispatch, system.admission, system.migration]
    return config.faults.name == "drawn" or system.in_stages or any(map(_takes_random, policies))


def _takes_random(policy: PolicyConfig) -> bool:
    """Return whether the policy's constructor asks for a random stream; True for a class not found."""
    if not policy.policy:
        return False
    find_modules_here()
    try:
        return "random" in signature(attribute("the policy", policy.policy)).parameters
    except (Exception, SystemExit):  # any error of the user's own code, which its point reports
        return True


def _draws_requests(trace: TraceConfig) -> bool:
    """Return whether the seed changes requests; a reader draws arrivals for a file that has none."""
    if trace.synthetic or any(getattr(trace, key) is not None for key in _DRAWING):
        return True
    one, other = (selected(trace, seed) for seed in (0, 1))
    return not all(_are_equal(getattr(one, key), getattr(other, key)) for key in _READ)


def _are_equal(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    return one is other or np.array_equal(one, other)
