"""Lengths as benchmark clients draw them: uniform whole numbers below two stated ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.synthetic.drawn import with_uniform_lengths
from traces.synthetic.process_like import poisson

SIDES = st.integers(1, 20_000)


@settings(max_examples=60)
@given(prompt=SIDES, output=SIDES, ratio=st.floats(0.01, 1), seed=st.integers(0, 2**64 - 1))
def test_lengths_are_within_the_ratio_and_independent_of_the_number_of_requests(
    prompt: int, output: int, ratio: float, seed: int
) -> None:
    lengths = f"{prompt}x{output}"
    drawn = with_uniform_lengths(poisson(seed, 50), lengths, ratio, seed)
    for tokens, most in ((drawn.prompt_tokens, prompt), (drawn.output_tokens, output)):
        assert max(1, int(ratio * most)) <= tokens.min() and tokens.max() <= most
    assert drawn.max_new_tokens is not None and (drawn.max_new_tokens == drawn.output_tokens).all()
    fewer = with_uniform_lengths(poisson(seed, 20), lengths, ratio, seed)
    assert (fewer.prompt_tokens == drawn.prompt_tokens[:20]).all()
    other = with_uniform_lengths(poisson(seed, 50), f"{prompt}x{output + 1}", ratio, seed)
    assert (other.prompt_tokens == drawn.prompt_tokens).all(), "prompts do not depend on outputs"


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_all_lengths_are_equally_likely(seed: int) -> None:
    """8192/1024 at 0.8: means of 7,372.5 and 921.5 tokens, their variances, no correlation."""
    drawn = with_uniform_lengths(poisson(seed, 20_000), "8192x1024", 0.8, seed)
    for tokens, least, most in ((drawn.prompt_tokens, 6553, 8192), (drawn.output_tokens, 819, 1024)):
        values = most - least + 1
        deviation = np.sqrt((values**2 - 1) / 12)
        assert tokens.mean() == pytest.approx((least + most) / 2, abs=6 * deviation / np.sqrt(20_000))
        assert tokens.std() == pytest.approx(deviation, rel=0.03)
        assert tokens.min() < least + 0.01 * values and tokens.max() > most - 0.01 * values
    assert abs(np.corrcoef(drawn.prompt_tokens, drawn.output_tokens)[0, 1]) < 6 / np.sqrt(20_000)


def test_a_ratio_of_one_is_the_lengths_themselves() -> None:
    drawn = with_uniform_lengths(poisson(1, 9), "100x7", 1.0, 0)
    assert set(drawn.prompt_tokens.tolist()) == {100} and set(drawn.output_tokens.tolist()) == {7}


@pytest.mark.parametrize(
    ("lengths", "ratio", "pattern"),
    [
        ("sharegpt", 0.8, "lengths=sharegpt names none: write lengths such as trace.lengths=1024x1024"),
        ("0x5", 0.8, "lengths=0x5 names none"),
        ("8x5", 0.0, "length_ratio=0 is out of range: write a number above 0 and at most 1"),
        ("8x5", 1.1, "length_ratio=1.1 is out of range"),
    ],
)
def test_other_lengths_and_ratios_are_refused(lengths: str, ratio: float, pattern: str) -> None:
    refuses(TraceError, pattern, with_uniform_lengths, poisson(1, 9), lengths, ratio, 0)
