"""D_sim / D_repeat over repeats of a real run: one disturbed run of five, intervals, blocks of time."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from servetwin.compare.bootstrap import RESAMPLES, arrival_blocks
from servetwin.compare.distance import distance, resampled_distances
from servetwin.compare.repeated import AGREES, DIFFERS, Distances, distances, disturbed_run

Floats = np.ndarray
REQUESTS = 300
ARRIVALS = np.cumsum(np.random.default_rng(5).exponential(0.2, REQUESTS))


def latencies(seed: int, slower: float = 1.0) -> Floats:
    """Of requests in a queue: neighbours are late together; 2 % of a run's speed is its own."""
    random = np.random.default_rng(seed)
    lengths = np.random.default_rng(9).gamma(2.0, 40.0, REQUESTS)  # the same requests in every run
    queue = np.zeros(REQUESTS)
    for at in range(1, REQUESTS):
        queue[at] = 0.9 * queue[at - 1] + random.normal(0, 6)
    return slower * random.normal(1.0, 0.02) * (100 + lengths + np.abs(queue))


def five(seed: int) -> list[Floats]:
    return [latencies(1000 * seed + number) for number in range(5)]


def judged(simulated: Floats, reals: Sequence[Floats]) -> Distances:
    """As ``servetwin.compare.agreement`` does it for one metric."""
    disturbed = disturbed_run({"e2e_ms": [float(real.mean()) for real in reals]})
    kept = [real for number, real in enumerate(reals) if number != disturbed]
    return distances(simulated, kept, ARRIVALS)


def slowed(real: Floats) -> Floats:
    return real * 1.6


def paused(real: Floats) -> Floats:
    """A program that ran for a fifth of the time and took both cores."""
    late = real.copy()
    late[100:160] += 900
    return late


def hastened(real: Floats) -> Floats:
    return real * 0.7


def a_little(real: Floats) -> Floats:
    """Too little to be named."""
    return real * 1.08


@pytest.mark.parametrize("disturbed_by", [slowed, paused, hastened, a_little])
@pytest.mark.parametrize(("slower", "verdict"), [(1.0, AGREES), (1.3, DIFFERS), (0.75, DIFFERS)])
def test_one_disturbed_run_of_five_changes_no_verdict(
    slower: float, verdict: str, disturbed_by: Callable[[Floats], Floats]
) -> None:
    for seed in range(4):
        reals, simulated = five(seed), latencies(77 + seed, slower)
        before = judged(simulated, reals)
        assert before.decides and before.verdict == verdict, (seed, before)
        for number in range(5):
            broken = [*reals[:number], disturbed_by(reals[number]), *reals[number + 1 :]]
            if disturbed_by is not a_little:
                assert not distances(simulated, broken, ARRIVALS).decides, "with it no row decides"
            after = judged(simulated, broken)
            assert after.decides and after.verdict == verdict, (seed, number, after)


def test_a_disturbed_run_is_named_only_where_the_others_agree() -> None:
    assert disturbed_run({"ttft_ms": [10, 10.4, 10.1, 13, 9.9]}) == 3
    assert disturbed_run({"ttft_ms": [10, 10.4, 10.1, 10.9, 9.9]}) is None
    assert disturbed_run({"ttft_ms": [10, 10, 10, 11.5, 10], "tpot_ms": [2, 2, 2, 2, 3]}) == 4, "the farthest"
    assert disturbed_run({"ttft_ms": [10, 10, 13, 10]}) is None, "of four none is left out"
    two = [10.0, 10.0, 10.0, 14.0, 14.0]
    assert disturbed_run({"ttft_ms": two}) == 3
    reals = [latencies(number) * mean / 10 for number, mean in enumerate(two)]
    assert not judged(latencies(8), reals).decides, "two of five are no accident"
    assert disturbed_run({"ttft_ms": [0.0] * 5}) is None


def test_intervals_cover_the_ratio_that_more_runs_would_give() -> None:
    """The ratio of many runs is inside the interval of five in at least four of five draws."""
    many = [latencies(50_000 + number) for number in range(60)]
    covered = total = 0
    for place in range(5):
        simulated = latencies(7_000 + place, 1.05)
        to_real = np.median([distance(simulated, real) for real in many])
        to_repeat = np.median([distance(many[a], many[b]) for a in range(60) for b in range(a)])
        for seed in range(10):
            one = distances(simulated, five(100 + 10 * place + seed), ARRIVALS)
            assert one.low <= one.ratio <= one.high
            covered += one.low <= to_real / to_repeat <= one.high
            total += 1
    assert covered >= 0.8 * total, f"{covered} of {total}"


def test_the_same_runs_in_another_order_of_requests_give_the_same_numbers() -> None:
    order = np.random.default_rng(2).permutation(REQUESTS)
    simulated, reals = latencies(1), five(2)
    mixed = distances(simulated[order], [real[order] for real in reals], ARRIVALS[order])
    assert mixed == distances(simulated, reals, ARRIVALS)


def test_blocks_are_of_arrival_time() -> None:
    """A burst is drawn as a whole or not at all, unless a window ends within it."""
    arrivals = np.concatenate([np.arange(50.0), 50 + np.arange(50) * 1e-3, 51 + np.arange(50.0)])
    times = arrival_blocks(arrivals)
    assert times.shape == (RESAMPLES, 150) and times.min() >= 0
    assert times.mean() == pytest.approx(1.0, abs=0.1), "every request as often as another"
    burst = times[:, 50:100]
    assert (burst == burst[:, :1]).all(axis=1).mean() > 0.98
    assert (times[:, 0] == times[:, 149]).mean() > (times[:, 0] == times[:, 75]).mean(), "circular"
    assert arrival_blocks(np.array([3.0])).shape == (RESAMPLES, 1)
    assert arrival_blocks(np.zeros(9)).sum() > 0, "all at once"


def test_a_resampled_distance_is_that_of_the_resample() -> None:
    random = np.random.default_rng(4)
    first, second = random.normal(size=(2, 40)).round(1)  # with equal values
    times = random.integers(0, 3, size=(6, 40))
    found = resampled_distances(first, second, times)
    for row, value in zip(times, found, strict=True):
        assert value == pytest.approx(distance(np.repeat(first, row), np.repeat(second, row)))
