"""How fast requests arrive: half of what the full split can prefill on average, in a burst nine tenths."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from experiments.compose import load_config
from experiments.reproduce.set_ups import SetUp, Words
from experiments.simulate import Prepared, prepare
from experiments.table import number
from serving.estimates import ModelEstimates
from traces.capacity import prompt_load, rate_factor

# Configurations made here write nothing.
NOWHERE = "out=nowhere"
_RECORDED = ("trace=azure_code", "trace=azure_conv", "trace=burstgpt_1")
_TWO_REQUESTS = ("trace=poisson", "trace.requests=2")


@dataclass(frozen=True, slots=True)
class Rate:
    """words: what sets it in a run. told: both terms of the rule, in a sentence."""

    words: Words
    told: str


def rate_of(set_up: SetUp, seed: int) -> Rate:
    """As ``drawn_rate``; a recorded window has one factor for all seeds."""
    recorded = set_up.rate == "scaled" and any(word in _RECORDED for word in set_up.trace)
    return drawn_rate(set_up, 0 if recorded else seed)


@cache
def drawn_rate(set_up: SetUp, seed: int) -> Rate:
    """f = min(share * C / mean, peak * most prefill instances * r / peak over 5 s), see traces.capacity.

    r: prefill tokens/s of one instance by the run's estimates; C: that of the full split's.
    """
    prepared = _prepared((*set_up.words, *set_up.trace, f"seed={seed}"))
    each = prepared.estimates.models[0].prefill_tokens_per_s
    capacity, most = each * set_up.full[0], each * set_up.prefill[1]
    if set_up.rate == "models":
        assert set_up.share is not None, "many models have a mean load"
        mean_tokens = float(np.mean(prepared.workload.prompt_tokens))
        per_s = set_up.share * capacity / mean_tokens
        told = f"{set_up.name}: {per_s:.4g} requests/s in all; C = {capacity:,.0f} prompt tokens/s"
        return Rate((f"models.rate_per_s={per_s:.6g}",), told)
    load = prompt_load(prepared.workload)
    factor = rate_factor(load, capacity, set_up.share, set_up.peak, most)
    told = (
        f"{set_up.name}: rate factor {factor} (seed {seed}; C = {set_up.full[0]} x {each:,.0f} = "
        f"{capacity:,.0f} prompt tokens/s, mean {number(load.mean_tokens_per_s)}, "
        f"peak {number(load.peak_tokens_per_s)})"
    )
    return Rate((f"trace.rate_scale={factor.factor:.6g}",), told)


@cache
def estimates_of(words: Words) -> ModelEstimates:
    """What one replica does by the run's step times, for a cluster, model and engine in words."""
    return _prepared((*words, *_TWO_REQUESTS)).estimates.models[0]


@cache
def kv_arithmetic(set_up: SetUp) -> str:
    """KV memory of one replica and how it was found."""
    return f"{set_up.name}: KV {_prepared((*set_up.words, *_TWO_REQUESTS)).hardware.kv_arithmetic}"


def _prepared(words: Words) -> Prepared:
    return prepare(load_config((*words, NOWHERE), "simulate"))
