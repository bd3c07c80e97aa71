"""Length tables: published numbers met by every sample, pairs by name, and refusals."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.length_tables import ANSWER_MOST_TOKENS, LENGTH_PAIRS, LENGTH_TABLES, length_pair
from traces.synthetic.lengths import LengthTable, draw_lengths

# Llumnix (OSDI 2024), Table 1, written down apart from the product: mean, then P50, P80, P95, P99.
PUBLISHED = {
    "sharegpt_in": (306, 74, 348, 1484, 3388),
    "sharegpt_out": (500, 487, 781, 988, 1234),
    "burstgpt_in": (830, 582, 1427, 2345, 3549),
    "burstgpt_out": (271, 243, 434, 669, 964),
    "short": (128, 38, 113, 413, 1464),
    "medium": (256, 32, 173, 1288, 4208),
    "long": (512, 55, 582, 3113, 5166),
}
# Azure LLM inference trace 2023: mean, then P50 and P99.
AZURE = {
    "azure_conv_in": (1154.7, 1020, 4142),
    "azure_conv_out": (211.1, 129, 601),
    "azure_code_in": (2047.8, 1469, 7436),
    "azure_code_out": (27.9, 13, 251),
}


def test_every_table_is_tested() -> None:
    assert set(LENGTH_TABLES) == set(PUBLISHED) | set(AZURE)
    assert all(table.source for table in LENGTH_TABLES.values())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", list(PUBLISHED))
def test_each_seed_has_the_published_numbers(name: str, seed: int) -> None:
    lengths = draw_lengths(LENGTH_TABLES[name], stream(seed, name), 10_000)
    mean, *quantiles = PUBLISHED[name]
    assert lengths.dtype == np.int64 and lengths.min() >= 1
    assert lengths.max() <= (ANSWER_MOST_TOKENS if name.endswith("_out") else 6144)
    assert lengths.mean() == pytest.approx(mean, rel=0.03)
    # Table 1 shows one sample of each Zipf distribution; ours is the distribution itself.
    tolerance = 0.16 if name in ("short", "medium", "long") else 0.05
    np.testing.assert_allclose(np.quantile(lengths, [0.5, 0.8, 0.95, 0.99]), quantiles, rtol=tolerance)


@pytest.mark.parametrize(("name", "alpha"), [("short", 2.0), ("medium", 1.5), ("long", 1.15)])
def test_zipf_lengths_are_those_of_the_artefact(name: str, alpha: float) -> None:
    """The least length has the weight of rank 1, and the next ones are its multiples."""
    mean = PUBLISHED[name][0]
    lengths = draw_lengths(LENGTH_TABLES[name], stream(0, name), 10_000)
    weights = [rank**-alpha for rank in range(1, 2 * mean)]
    least = sum(weights) / sum(weight * rank for rank, weight in enumerate(weights, 1)) * mean
    assert lengths.min() == math.ceil(least) and set(np.unique(lengths)[:3]) == {
        math.ceil(least), math.ceil(2 * least), math.ceil(3 * least)
    }  # fmt: skip
    assert (lengths == lengths.min()).mean() == pytest.approx(1 / sum(weights), abs=1e-3)


@pytest.mark.parametrize("field", ["mean", "alpha", "ranks", "most_tokens"])
def test_a_bad_zipf_table_is_refused(field: str) -> None:
    with pytest.raises(TraceError, match="above 0"):
        draw_lengths(replace(LENGTH_TABLES["short"], **{field: 0}), stream(0, "bad"), 10)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", list(AZURE))
def test_each_seed_has_the_measured_numbers(name: str, seed: int) -> None:
    table = LENGTH_TABLES[name]
    assert isinstance(table, LengthTable)
    lengths = draw_lengths(table, stream(seed, name), table.rows)
    mean, *quantiles = AZURE[name]
    assert lengths.mean() == pytest.approx(mean, rel=0.03)
    np.testing.assert_allclose(np.quantile(lengths, [0.5, 0.99]), quantiles, rtol=0.05)
    assert table.knots[0][1] <= lengths.min() and lengths.max() <= table.knots[-1][1]


def test_a_short_stretch_varies_like_independent_draws() -> None:
    """Means of 100 rows: their deviation is that of the lengths by the root of 100, to 10 %."""
    table = LENGTH_TABLES["long"]
    lengths = draw_lengths(table, stream(1, "stretch"), 200_000).reshape(-1, 100)
    assert lengths.mean(axis=1).std() == pytest.approx(lengths.std() / 10, rel=0.1)


def test_neighbours_do_not_know_each_other() -> None:
    lengths = draw_lengths(LENGTH_TABLES["burstgpt_in"], stream(2, "lag"), 50_000)
    assert abs(np.corrcoef(lengths[:-1], lengths[1:])[0, 1]) < 0.025


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 50), st.integers(0, 9))
def test_fewer_are_a_prefix_of_more(one: int, two: int, rows: int, seed: int) -> None:
    table = LengthTable(((0, 1), (0.5, 20), (1, 400)), 60, rows, "test")
    few, many = sorted((one, two))
    drawn = [draw_lengths(table, stream(seed, "x"), count).tolist() for count in (few, many)]
    assert drawn[1][:few] == drawn[0] and len(drawn[1]) == many


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 5000), min_size=3, max_size=7),
    st.floats(0.05, 0.95),
    st.integers(0, 1000),
)
def test_any_mean_that_knots_allow_is_met(tokens: list[int], share: float, seed: int) -> None:
    values = sorted(tokens)
    probability = np.linspace(0, 1, len(values))
    low = float((np.diff(probability) * values[:-1]).sum())
    high = float((np.diff(probability) * values[1:]).sum())
    mean = low + share * (high - low) if high > low else low
    table = LengthTable(tuple(zip(probability.tolist(), values)), mean, 5000, "test")
    lengths = draw_lengths(table, stream(seed, "mean"), 5000)
    assert lengths.mean() == pytest.approx(mean, rel=0.01, abs=0.6)  # half a token is rounding
    assert values[0] <= lengths.min() and lengths.max() <= values[-1]


@pytest.mark.parametrize("name", list(LENGTH_PAIRS))
def test_a_pair_names_two_tables(name: str) -> None:
    prompt, output = LENGTH_PAIRS[name]
    assert length_pair(name) == (LENGTH_TABLES[prompt], LENGTH_TABLES[output])


def test_two_tables_or_two_numbers_make_a_pair() -> None:
    assert length_pair("burstgpt_in+short") == (LENGTH_TABLES["burstgpt_in"], LENGTH_TABLES["short"])
    prompt, output = length_pair("512x1")
    assert set(draw_lengths(prompt, stream(0, "x"), 50).tolist()) == {512}
    assert set(draw_lengths(output, stream(0, "x"), 50).tolist()) == {1}


@pytest.mark.parametrize(
    "name", ["", "long", "x", "0x5", "5x0", "99999999x1", "a+b", "long+", "1x2x3", 7, None]
)
def test_an_unknown_pair_is_refused(name: Any) -> None:
    with pytest.raises(TraceError, match=r"lengths=.* is unknown: write one of sharegpt, burstgpt"):
        length_pair(name)


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"mean": 1e6}, "is not possible"),
        ({"rows": 0}, "rows of the length table=0"),
        ({"knots": ((0, 5),)}, "two or more"),
        ({"knots": ((0, 5), (1, 4))}, "in rising order"),
    ],
)
def test_a_bad_table_is_refused(changed: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        draw_lengths(replace(LENGTH_TABLES["burstgpt_in"], **changed), stream(0, "bad"), 10)


@pytest.mark.parametrize("count", [0, -1, 1.5, 10**12])
def test_a_bad_count_is_refused(count: Any) -> None:
    with pytest.raises(TraceError, match="count="):
        draw_lengths(LENGTH_TABLES["short"], stream(0, "bad"), count)


@pytest.mark.parametrize("spread", ["azure_conv", "azure_conv_in+burstgpt_out", "ll"])
def test_a_pair_takes_means_and_keeps_its_spread(spread: str) -> None:
    for side, (table, mean) in enumerate(zip(length_pair(f"{spread}:1500x300"), (1500, 300), strict=True)):
        lengths = draw_lengths(table, np.random.default_rng(1), table.rows)
        own = draw_lengths(length_pair(spread)[side], np.random.default_rng(1), table.rows)
        assert lengths.mean() == pytest.approx(mean, rel=0.02)
        assert lengths.std() / lengths.mean() == pytest.approx(own.std() / own.mean(), rel=0.05)


@pytest.mark.parametrize("name", ["512x128:1500x300", "azure_conv:1500", "azure:1500x300", ":1500x300"])
def test_means_are_of_a_spread(name: str) -> None:
    with pytest.raises(TraceError, match="azure_conv:1500x300"):
        length_pair(name)
