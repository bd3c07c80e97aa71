"""Streams, lengths from quantile tables, and the stand-in for the Azure conversation trace."""

import math

import numpy as np
import pytest

from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.azure_like import STAND_IN_LABEL, azure_conv_like
from traces.synthetic.length_tables import CONV_REQUESTS
from traces.synthetic.lengths import Knot, lengths_from_quantiles
from traces.synthetic.registry import STATIONARY, SYNTHETIC

# Mean and P50, P80, P95, P99 as published by Llumnix (OSDI'24); least (1) and most (6,144) tokens are ours.
TABLES = {
    "sharegpt_in": (306, (74, 348, 1484, 3388)),
    "sharegpt_out": (500, (487, 781, 988, 1234)),
    "burstgpt_in": (830, (582, 1427, 2345, 3549)),
    "burstgpt_out": (271, (243, 434, 669, 964)),
    "short": (128, (38, 113, 413, 1464)),
    "medium": (256, (32, 173, 1288, 4208)),
    "long": (512, (55, 582, 3113, 5166)),
}


def test_a_stream_depends_on_seed_and_name_alone() -> None:
    first = stream(7, "arrivals").random(5).tolist()
    stream(7, "another consumer").random(100)
    assert stream(7, "arrivals").random(5).tolist() == first
    assert stream(8, "arrivals").random(5).tolist() != first
    assert stream(7, "lengths").random(5).tolist() != first


def test_a_streams_first_bits_are_pinned() -> None:
    assert stream(0, "arrivals").bit_generator.random_raw(2).tolist() == [
        12488342655491446218,
        2151178649810114974,
    ]


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", True, None])
def test_a_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(TraceError, match="seed="):
        stream(seed, "arrivals")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(TABLES))
def test_published_tables_are_met(name: str) -> None:
    mean, quantiles = TABLES[name]
    knots: list[Knot] = [(0, 1), *zip((0.5, 0.8, 0.95, 0.99), quantiles), (1, 6144)]
    lengths = lengths_from_quantiles(stream(1, name), 200_000, knots, mean)
    assert lengths.dtype == np.int64 and lengths.min() >= 1 and lengths.max() <= 6144
    assert lengths.mean() == pytest.approx(mean, rel=0.03)
    for p, quantile in zip((0.5, 0.8, 0.95, 0.99), quantiles):
        noise = 4 * math.sqrt(p * (1 - p) / len(lengths))
        assert (lengths < quantile).mean() <= p + noise and (lengths <= quantile).mean() >= p - noise


def test_without_a_mean_segments_are_straight() -> None:
    lengths = lengths_from_quantiles(stream(1, "straight"), 100_000, [(0, 1), (0.5, 101), (1, 1101)])
    assert lengths.mean() == pytest.approx(0.5 * 51 + 0.5 * 601, rel=0.02)


def test_equal_knots_make_an_atom() -> None:
    lengths = lengths_from_quantiles(stream(1, "atom"), 100, [(0, 5), (1, 5)], 5)
    assert set(lengths.tolist()) == {5}


def test_fewer_lengths_are_a_prefix_of_more() -> None:
    knots: list[Knot] = [(0, 1), (1, 100)]
    few, many = (lengths_from_quantiles(stream(3, "x"), n, knots, 30) for n in (10, 50))
    assert few.tolist() == many[:10].tolist()


@pytest.mark.parametrize(
    ("knots", "mean", "part"),
    [
        ([], None, "two or more"),
        ([(0, 1)], None, "two or more"),
        ([(0, 1), (1, "x")], None, "pairs of numbers"),
        ([(0, 1), (1,)], None, "pairs of numbers"),
        ([(0.1, 1), (1, 9)], None, "rising from 0 to 1"),
        ([(0, 1), (0.9, 9)], None, "rising from 0 to 1"),
        ([(0, 1), (0.5, 4), (0.5, 5), (1, 9)], None, "rising from 0 to 1"),
        ([(0, 1), (math.nan, 4), (1, 9)], None, "rising from 0 to 1"),
        ([(0, 0.5), (1, 9)], None, "from 1 to"),
        ([(0, 1), (1, math.nan)], None, "from 1 to"),
        ([(0, 1), (1, 1e8)], None, "from 1 to"),
        ([(0, 1), (0.5, 9), (1, 8)], None, "in rising order"),
        ([(0, 1), (0.5, 5), (1, 9)], 3.0, "above 3 and below 7"),
        ([(0, 1), (0.5, 5), (1, 9)], 7.0, "above 3 and below 7"),
        ([(0, 1), (1, 9)], math.nan, "is not possible"),
        ([(0, 5), (1, 5)], 6.0, "is not possible"),
    ],
)
def test_bad_tables_are_refused(knots: list[Knot], mean: float | None, part: str) -> None:
    with pytest.raises(TraceError, match=part):
        lengths_from_quantiles(stream(1, "bad"), 10, knots, mean)


@pytest.mark.parametrize("seed", range(10))
def test_the_stand_in_has_the_conversation_traces_statistics(seed: int) -> None:
    """Targets: the published file's own statistics, to 3 % (means, CV) and 5 % (quantiles)."""
    workload = azure_conv_like(seed, CONV_REQUESTS)
    gaps_s = np.diff(workload.arrival_ns) / 1e9
    assert workload.mean_rate_per_s == pytest.approx(5.53, rel=0.03)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.09, rel=0.03)
    assert workload.prompt_tokens.mean() == pytest.approx(1155, rel=0.03)
    assert workload.output_tokens.mean() == pytest.approx(211, rel=0.03)
    np.testing.assert_allclose(np.quantile(workload.prompt_tokens, [0.5, 0.99]), [1020, 4142], rtol=0.05)
    np.testing.assert_allclose(np.quantile(workload.output_tokens, [0.5, 0.99]), [129, 601], rtol=0.05)
    assert workload.prompt_tokens.max() <= 14_050 and workload.prompt_tokens.min() >= 2
    assert workload.output_tokens.max() <= 1000 and workload.output_tokens.min() >= 7


def test_the_stand_in_says_what_it_is() -> None:
    workload = azure_conv_like(3, 20, 2.0)
    assert workload.source == "synthetic azure_conv_like seed=3 requests=20 rate_per_s=2 gap_cv=1.09"
    assert workload.labels == (STAND_IN_LABEL,)
    assert (workload.name, workload.rows_read, workload.dropped) == ("azure_conv_like", 20, {})
    assert workload.arrival_ns[0] == 0


def test_the_same_seed_gives_the_same_rows_and_fewer_are_a_prefix() -> None:
    long, short, other = azure_conv_like(5, 500), azure_conv_like(5, 50), azure_conv_like(6, 50)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert getattr(long, column)[:50].tolist() == getattr(short, column).tolist()
        assert getattr(short, column).tolist() != getattr(other, column).tolist()


def test_another_rate_keeps_lengths_and_the_shape_of_gaps() -> None:
    slow, fast = azure_conv_like(5, 200, 1.0), azure_conv_like(5, 200, 10.0)
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist()
    np.testing.assert_allclose(slow.arrival_ns, fast.arrival_ns * 10, atol=2000)


def test_the_gap_variation_is_free() -> None:
    for cv in (0.25, 4.0):
        gaps = np.diff(azure_conv_like(1, 50_000, gap_cv=cv).arrival_ns)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


def test_one_request_is_enough() -> None:
    assert azure_conv_like(0, 1).arrival_ns.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"requests": 0}, "requests=0"),
        ({"requests": -5}, "requests=-5"),
        ({"requests": 2.5}, "requests=2.5"),
        ({"requests": True}, "requests=True"),
        ({"requests": 10**12}, "requests="),
        ({"rate_per_s": 0}, "rate_per_s=0"),
        ({"rate_per_s": -1.0}, "rate_per_s=-1.0"),
        ({"rate_per_s": math.nan}, "rate_per_s=nan"),
        ({"rate_per_s": math.inf}, "rate_per_s=inf"),
        ({"rate_per_s": "fast"}, "rate_per_s='fast'"),
        ({"rate_per_s": 1e-300}, "31 years"),
        ({"gap_cv": 0}, "gap_cv=0"),
        ({"gap_cv": 1e9}, "gap_cv=1000000000.0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, object], part: str) -> None:
    arguments: dict[str, object] = {"seed": 0, "requests": 10, **options}
    with pytest.raises(TraceError) as caught:
        azure_conv_like(**arguments)  # type: ignore[arg-type]
    assert part in str(caught.value)


@pytest.mark.parametrize("name", sorted(STATIONARY))
def test_a_stationary_trace_drawn_at_another_rate_is_the_same_but_for_the_unit_of_time(name: str) -> None:
    slow, fast = (SYNTHETIC[name](seed=3, requests=400, rate_per_s=rate) for rate in (1.0, 4.0))
    assert np.abs(slow.arrival_ns - 4 * fast.arrival_ns).max() < 4 * 400  # each gap is rounded to 1 ns
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist()
