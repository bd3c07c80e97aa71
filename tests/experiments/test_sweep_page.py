"""The page of a sweep: who it calls better, and where it draws a logarithmic axis."""

from collections.abc import Sequence

import pytest

from experiments.report import plots
from experiments.sweep.axes import Axis
from experiments.sweep.outcome import Outcome
from experiments.sweep.page import sweep_page, told_difference, verdicts
from experiments.sweep.points import Point
from experiments.sweep.student import Interval
from experiments.sweep.table import Sweep

METRIC = "ttft_ms.mean"


def made(axes: Sequence[Axis], numbers: Sequence[float | None]) -> Sweep:
    """Points in the order of the axes, the last one fastest; None: refused."""
    values: list[tuple[tuple[str, str], ...]] = [()]
    for axis in axes:
        values = [(*before, (axis.key, text)) for before in values for text in axis.texts]
    points = tuple(Point(place, (), one) for place, one in enumerate(values))
    outcomes = tuple(
        Outcome({}, "not possible") if number is None else Outcome({METRIC: number}) for number in numbers
    )
    return Sweep(tuple(axes), points, outcomes)


SEEDS = Axis("seed", ("0", "1", "2"))
SYSTEMS = Axis("system", ("a", "b", "c"))
BASE = (100.0, 110.0, 120.0)


def test_one_setting_is_lower_higher_or_not_distinguishable() -> None:
    lower, open_one = (50.0, 61.0, 70.0), (90.0, 115.0, 121.0)
    sweep = made((SYSTEMS, SEEDS), (*BASE, *lower, *open_one))
    assert verdicts(sweep, [METRIC]) == [
        "TTFT mean against system=a: system=b is lower; system=c is not distinguishable."
    ]
    higher = tuple(5 * one for one in BASE)
    sweep = made((SYSTEMS, SEEDS), (*BASE, *higher, *BASE))
    assert "system=b is higher; system=c is not distinguishable" in verdicts(sweep, [METRIC])[0]


def test_several_settings_are_counted() -> None:
    rates = Axis("trace.rate_per_s", ("1", "2"))
    two = Axis("system", ("a", "b"))
    low, high = tuple(one - 60 for one in BASE), tuple(one + 50 + 0.1 * one for one in BASE)
    sweep = made((two, rates, SEEDS), (*BASE, *BASE, *low, *high))
    assert verdicts(sweep, [METRIC]) == [
        "TTFT mean against system=a: system=b is lower in 1, higher in 1 of 2 settings."
    ]


def test_differences_are_told_with_what_they_leave_open() -> None:
    assert told_difference(METRIC, Interval(3, -12.0, 4.0)) == "-12.0 ms ± 4.00 ms"
    assert told_difference(METRIC, Interval(3, 2.0, 4.0)) == "+2.00 ms ± 4.00 ms (not distinguishable)"
    assert told_difference(METRIC, Interval(3, 0.0, 0.0)) == "none: every seed gave the same"
    assert told_difference(METRIC, Interval(1, 2.0, None)) == "+2.00 ms"


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    (told,) = verdicts(made((SYSTEMS,), (1.0, 2.0, 3.0)), [METRIC])
    assert told == "TTFT mean is least at system=a (1.00 ms) and most at system=c (3.00 ms)."


def test_a_least_that_others_cannot_be_told_from_is_said_so() -> None:
    axis = Axis("engine.max_num_seqs", ("1", "2", "4"))
    far, least, near = (30.0, 31.0, 32.0), (10.0, 14.0, 12.0), (10.5, 13.0, 13.5)
    (told,) = verdicts(made((axis, SEEDS), (*far, *least, *near)), [METRIC])
    assert told.endswith("; not distinguishable from the least: engine.max_num_seqs=4.")
    assert "is least at engine.max_num_seqs=2 (12.0 ms" in told


def test_numbers_alone_have_a_least_and_a_most() -> None:
    axis = Axis("engine.max_num_seqs", ("1", "2", "4"))
    (told,) = verdicts(made((axis,), (30.0, 10.0, 20.0)), [METRIC])
    assert told == (
        "TTFT mean is least at engine.max_num_seqs=2 (10.0 ms) and most at engine.max_num_seqs=1 (30.0 ms)."
    )
    assert verdicts(made((axis,), (30.0, None, None)), [METRIC]) == []
    assert verdicts(made((axis,), (1.0, 2.0, 3.0)), []) == []


@pytest.mark.parametrize(
    ("texts", "is_log"), [(("1", "19"), False), (("1", "20"), True), (("0", "90"), False)]
)
def test_values_over_more_than_a_decade_lie_on_a_logarithmic_axis(
    texts: tuple[str, str], is_log: bool
) -> None:
    page = sweep_page(made((Axis("cluster.nic_gbps", texts),), (3.0, 4.0)), "servetwin sweep", [METRIC])
    assert ("cluster.nic_gbps (logarithmic)" in page) == is_log


def test_a_logarithmic_axis_holds_every_positive_value() -> None:
    import numpy as np

    axis = plots.log_axis("", np.array([0.0, 2.0, np.nan, 400.0]))
    assert axis.log and axis.low < 2.0 and axis.high > 400.0
    assert axis.place(np.array([axis.low, axis.high]), 0.0, 100.0) == pytest.approx([0.0, 100.0])
    middle = np.sqrt(axis.low * axis.high)
    assert axis.place(np.array([middle]), 0.0, 100.0) == pytest.approx([50.0])
    one = plots.log_axis("", np.array([5.0]))
    assert one.high / one.low == pytest.approx(10.0) and one.low < 5.0 < one.high
    none = plots.log_axis("", np.array([0.0, -1.0]))
    assert (none.low, none.high) == (1.0, 10.0)
