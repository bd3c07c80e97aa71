"""The unit of the benchmarks: noise in the yardstick makes no work look cheaper. The clocks are made up."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks import raw
from benchmarks.raw import Repeats, Solves, measured, percentile, raw_timeout_s, solves


def scripted(*values: float) -> Callable[[], float]:
    given: Iterator[float] = iter(values)
    return lambda: next(given)


def test_the_best_is_least_work_over_least_unit_each_on_its_own() -> None:
    """The work takes 60 us or a bit more. In the third run the unit alone was slowed down, to twice 1 us."""
    runs = measured(scripted(60e-6, 66e-6, 62e-6), 3, scripted(1.0e-6, 1.1e-6, 2.0e-6, 2.0e-6))
    assert runs == Repeats((60e-6, 66e-6, 62e-6), (1.0e-6, 1.1e-6, 2.0e-6, 2.0e-6))
    assert runs.best == pytest.approx(60), "not 62 / 2 = 31, the least quotient"
    assert runs.median == pytest.approx(62 / 1.55), "a ratio of medians"


def test_noise_only_makes_it_dearer_or_leaves_it() -> None:
    quiet = measured(scripted(60e-6, 60e-6), 2, scripted(1e-6, 1e-6, 1e-6))
    in_the_work = measured(scripted(90e-6, 60e-6), 2, scripted(1e-6, 1e-6, 1e-6))
    in_the_unit = measured(scripted(60e-6, 60e-6), 2, scripted(3e-6, 3e-6, 1e-6))
    assert quiet.best == in_the_work.best == in_the_unit.best == pytest.approx(60)


def test_the_line_says_both_times() -> None:
    runs = Repeats((60e-6, 80e-6, 70e-6), (0.5e-6, 0.8e-6))
    told = " ".join(runs.text("request").split())
    assert told == "120.0 raw per request (median 107.7) 60.00 us CPU per request raw 0.500 us"


def test_the_unit_is_the_best_of_three_by_the_clock_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "TIMEOUTS", 10)
    assert raw_timeout_s(scripted(0, 30, 100, 120, 200, 225)) == 2.0


def test_decisions_are_counted_one_by_one_and_the_unit_is_taken_between_rounds() -> None:
    found = solves(scripted(3e-3, 1e-3, 2e-3, 9e-3), 2, 2, scripted(1.1e-6, 1.0e-6, 1.3e-6))
    assert found == Solves((3e-3, 1e-3, 2e-3, 9e-3), (1.1e-6, 1.0e-6, 1.3e-6))
    assert " ".join(found.text().split()) == (
        "least 1 ms (1,000 raw) p50 2 ms (2,000 raw) p99 9 ms (9,000 raw) of 4, raw 1.000 us"
    )


def test_a_percentile_is_the_value_at_the_rank_above() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]
    assert percentile([5.0, 7.0, 6.0], 50) == 6.0 and percentile([5.0, 7.0], 99) == 7.0
