"""Rates of arrival: on average half of what the full split can carry, in a burst nine tenths."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from experiments.common.set_up import SetUp, Words
from hwmodels.step_times.rows import FIXED_PER_S
from servetwin.config.compose.compose import load_config
from servetwin.report.number_text import number
from servetwin.run.prepared import Prepared
from servetwin.run.simulate import prepare
from serving.vocabulary.estimates import ModelEstimates
from traces.capacity import prompt_load, rate_factor

# Configurations made in this module write no files.
NOWHERE = "out=nowhere"
_RECORDED = ("trace=azure_code", "trace=azure_conv", "trace=burstgpt_1")
_TWO_REQUESTS = ("trace=poisson", "trace.requests=2")


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """words: what sets it in a run. rule: its terms, in a sentence."""

    words: Words
    rule: str


def rate_of(set_up: SetUp, seed: int) -> ArrivalRate:
    """Return the rate of the set-up: that of ``drawn_rate``, with one factor for all seeds of a window.

    A rate that is written in the words is that of the trace.
    """
    if set_up.rate == "written":
        return ArrivalRate((), f"{set_up.name}: {' '.join(set_up.trace)}")
    recorded = set_up.rate == "scaled" and any(word in _RECORDED for word in set_up.trace)
    return drawn_rate(set_up, 0 if recorded else seed)


@cache
def drawn_rate(set_up: SetUp, seed: int) -> ArrivalRate:
    """f = min(share * C / mean, peak * most prefill instances * r / peak over 5 s), as in traces.capacity.

    r: prefill tokens/s of one instance by the run's estimates; C: what the full split can carry, in prompt
    tokens/s: the smaller of what its prefill instances compute and what its decode instances hold.
    """
    prepared = _prepare((*set_up.words, *set_up.trace, f"seed={seed}"))
    each = prepared.estimates.models[0].prefill_tokens_per_s
    prefill, most = each * set_up.full[0], each * set_up.prefill[1]
    if set_up.rate == "models":
        assert set_up.share is not None, "many models have a mean load"
        mean_tokens = float(np.mean(prepared.workload.prompt_tokens))
        per_s = set_up.share * prefill / mean_tokens
        rule = f"{set_up.name}: {per_s:.4g} requests/s in all; C = {prefill:,.0f} prompt tokens/s"
        return ArrivalRate((f"models.rate_per_s={per_s:.6g}",), rule)
    load = prompt_load(prepared.workload)
    held = kv_tokens_per_s(prepared) * set_up.full[1]
    capacity = prefill if set_up.capacity == "prefill" else min(prefill, held)
    factor = rate_factor(load, capacity, set_up.share, set_up.peak, most)
    rule = (
        f"{set_up.name}: rate factor {factor} (seed {seed}; C = {capacity:,.0f} prompt tokens/s, of prefill "
        f"{set_up.full[0]} x {each:,.0f} = {prefill:,.0f}, of decode {held:,.0f}; "
        f"mean {number(load.mean_tokens_per_s)}, peak {number(load.peak_tokens_per_s)})"
    )
    return ArrivalRate((f"trace.rate_scale={factor.factor:.6g}",), rule)


def kv_tokens_per_s(prepared: Prepared) -> float:
    """Prompt tokens/s whose requests one decode instance finishes with its KV memory full, or all seats.

    A request holds its prompt and its whole output while it decodes (the runs reserve that), and counts for
    as long as it decodes: long outputs are there more often.
    """
    workload, engine = prepared.workload, prepared.config.engine
    prompts, outputs = (
        column.astype(np.float64) for column in (workload.prompt_tokens, workload.output_tokens)
    )
    held = float(np.average(prompts + outputs, weights=outputs))
    context = float(np.average(prompts + outputs / 2, weights=outputs))
    seats = max(1, int(min(engine.max_num_seqs, prepared.estimates.models[0].kv_tokens // held)))
    step_s = prepared.hardware.rows.decode_cost(seats, round(seats * context)) / FIXED_PER_S
    return seats / step_s / float(outputs.mean()) * float(prompts.mean())


@cache
def estimates_of(words: Words) -> ModelEstimates:
    """Return the estimates for one replica from the run's step times; words: cluster, model and engine."""
    return _prepare((*words, *_TWO_REQUESTS)).estimates.models[0]


@cache
def kv_arithmetic(set_up: SetUp) -> str:
    """KV memory of one replica and how it was found."""
    return f"{set_up.name}: KV {_prepare((*set_up.words, *_TWO_REQUESTS)).hardware.kv_arithmetic}"


def _prepare(words: Words) -> Prepared:
    return prepare(load_config((*words, NOWHERE), "simulate"))
