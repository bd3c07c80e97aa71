"""The generated traces of Llumnix are the artefact's own: Table 1 of the paper, to the token."""

import random

import numpy as np
import pytest

from traces.errors import TraceError
from traces.synthetic.registry import SYNTHETIC

# Llumnix (OSDI 2024), Table 1: P50, P80, P95, P99 of prompts S, M and L.
TABLE_1 = {"ss": (38, 113, 413, 1464), "mm": (32, 173, 1288, 4208), "ll": (55, 582, 3113, 5166)}


@pytest.mark.parametrize("name", list(TABLE_1))
def test_seed_0_has_table_1_to_the_token(name: str) -> None:
    workload = SYNTHETIC[f"llumnix_{name}"](seed=0)
    quantiles = np.quantile(workload.prompt_tokens, [0.5, 0.8, 0.95, 0.99])
    assert np.floor(quantiles).tolist() == list(TABLE_1[name])


def test_lengths_are_those_of_numpys_legacy_generator_in_the_artefacts_order() -> None:
    """Written again from the description: prompts, outputs, then gaps, from one seed."""
    legacy = np.random.RandomState(0xCADE)
    ranks = np.arange(1, 1024)
    weights = ranks**-1.15
    sides = []
    for _ in range(2):
        drawn = legacy.choice(ranks, size=10_000, p=weights / weights.sum())
        sides.append(np.minimum(np.ceil(drawn * (512 / drawn.mean())), 6144).astype(int).tolist())
    gaps_s = [legacy.exponential(1 / 2.6) for _ in range(9_999)]
    workload = SYNTHETIC["llumnix_ll"](seed=0, rate_per_s=2.6)
    assert [workload.prompt_tokens.tolist(), workload.output_tokens.tolist()] == sides
    np.testing.assert_allclose(np.diff(workload.arrival_ns) / 1e9, gaps_s, atol=2e-9)
    assert workload.arrival_ns[0] == 0


def test_other_seeds_are_samples_of_the_same_kind() -> None:
    first, other = (SYNTHETIC["llumnix_ss"](seed=seed) for seed in (0, 1))
    assert first.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert other.prompt_tokens.mean() == pytest.approx(128, rel=0.02)
    assert (other.prompt_tokens == other.prompt_tokens.min()).mean() == pytest.approx(0.609, abs=0.02)


def test_more_than_a_sample_goes_on() -> None:
    short, long = (SYNTHETIC["llumnix_ss"](seed=0, requests=count) for count in (10_000, 10_500))
    assert long.prompt_tokens[:10_000].tolist() == short.prompt_tokens.tolist()
    assert long.arrival_ns[:10_000].tolist() == short.arrival_ns.tolist()


def test_the_artefacts_own_choice_of_high_priority_requests() -> None:
    """Its calls, one by one: a token id, a session, a priority."""
    workload = SYNTHETIC["llumnix_ss"](seed=0, priority_ratio=0.1)
    drawn = random.Random(0xCADE)
    for _ in range(int(workload.prompt_tokens.sum())):
        drawn.randint(10, 32_000)
    for _ in range(10_000):
        drawn.random()
    assert workload.priority is not None
    assert workload.priority.tolist() == [int(drawn.random() < 0.1) for _ in range(10_000)]
    assert workload.priority.sum() == 1022
    assert workload.labels[-1] == "1022 of 10000 requests drawn to have a high priority (seed 0)"


def test_other_seeds_choose_others_and_fewer_requests_are_a_prefix() -> None:
    chosen = {seed: SYNTHETIC["llumnix_ss"](seed=seed, priority_ratio=0.1).priority for seed in (0, 1, 2)}
    fewer = SYNTHETIC["llumnix_ss"](seed=1, priority_ratio=0.1, requests=300).priority
    assert (fewer == chosen[1][:300]).all()
    assert (chosen[0] != chosen[1]).any() and (chosen[1] != chosen[2]).any()
    assert SYNTHETIC["llumnix_ss"](seed=0).priority is None


def test_a_ratio_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TraceError, match=r"trace.priority_ratio=2 is not a share"):
        SYNTHETIC["llumnix_ss"](priority_ratio=2.0)
    with pytest.raises(
        TraceError, match=r"does not apply to trace=llumnix_sharegpt: .*high_priority_share=0\.1"
    ):
        SYNTHETIC["llumnix_sharegpt"](priority_ratio=0.1)
