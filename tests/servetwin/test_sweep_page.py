"""The page of a sweep: who it calls better, and where it draws a logarithmic axis."""

from collections.abc import Sequence

import pytest

from servetwin.cli.sweep import lines_of
from servetwin.report import plots
from servetwin.sweeps.axes import SweepAxis
from servetwin.sweeps.confidence import Interval
from servetwin.sweeps.headline import USUAL, headline, judges
from servetwin.sweeps.outcome import PointOutcome
from servetwin.sweeps.page import named_axes, remarks, sweep_page, verdicts
from servetwin.sweeps.points import Point
from servetwin.sweeps.table import SweepRuns
from servetwin.sweeps.text import difference_text

METRIC = "ttft_ms.mean"


def made(axes: Sequence[SweepAxis], numbers: Sequence[float | None], metric: str = METRIC) -> SweepRuns:
    """Points in the order of the axes, the last one fastest; None: refused."""
    values: list[tuple[tuple[str, str], ...]] = [()]
    for axis in axes:
        values = [(*before, (axis.key, text)) for before in values for text in axis.texts]
    points = tuple(Point(place, (), one) for place, one in enumerate(values))
    outcomes = tuple(
        PointOutcome({}, "not possible") if number is None else PointOutcome({metric: number})
        for number in numbers
    )
    return SweepRuns(tuple(axes), points, outcomes)


SEEDS = SweepAxis("seed", ("0", "1", "2"))
SYSTEMS = SweepAxis("system", ("a", "b", "c"))
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
    rates = SweepAxis("trace.rate_per_s", ("1", "2"))
    two = SweepAxis("system", ("a", "b"))
    low, high = tuple(one - 60 for one in BASE), tuple(one + 50 + 0.1 * one for one in BASE)
    sweep = made((two, rates, SEEDS), (*BASE, *BASE, *low, *high))
    assert verdicts(sweep, [METRIC]) == [
        "TTFT mean against system=a: system=b is lower in 1, higher in 1 of 2 settings."
    ]


def test_choices_are_compared_under_each_trace() -> None:
    """Not one trace or load with another: beside a system, nor beside numbers. Traces alone are compared."""
    traces, systems = SweepAxis("trace", ("a", "b")), SweepAxis("system", ("x", "y"))
    numbers = SweepAxis("system.dispatch.sticky", ("0", "200"))
    many = SweepAxis("engine.max_num_seqs", tuple(str(one) for one in range(1, 10)))
    rates = SweepAxis("trace.utilization", ("0.5", "0.8"))

    def compared(*axes: SweepAxis) -> list[str]:
        count = 1
        for axis in axes:
            count *= len(axis.texts)
        return named_axes(made(axes, [1.0] * count))

    assert compared(traces, systems, SEEDS) == ["system"]
    assert compared(traces, numbers, SEEDS) == ["system.dispatch.sticky"]
    assert compared(traces, SEEDS) == ["trace"] and compared(traces, many) == ["trace"]
    assert compared(systems, numbers) == ["system", "system.dispatch.sticky"]
    assert compared(numbers, SEEDS) == ["system.dispatch.sticky"] == compared(rates, numbers, SEEDS)
    assert compared(rates, SEEDS) == [] == compared(rates, many)


def test_numbers_of_a_policy_are_compared_over_the_same_seeds_and_loads() -> None:
    """Also on the console, where the differences stand below the means."""
    targets, rates = (
        SweepAxis("system.scaler.target", ("60", "80")),
        SweepAxis("trace.rate_per_s", ("1", "2")),
    )
    raised = tuple(one + 5 + 0.01 * one for one in BASE)
    sweep = made((targets, rates, SEEDS), (*BASE, *BASE, *raised, *BASE))
    lines = "\n".join(lines_of(sweep, [METRIC], []))
    assert "  against system.scaler.target=60, the same seeds:\n" in lines
    assert "  system.scaler.target=80, trace.rate_per_s=1  +6.10 ms ± 0.248 ms\n" in f"{lines}\n"
    assert "against trace.rate_per_s" not in lines
    (told,) = verdicts(sweep, [METRIC])
    assert "system.scaler.target=80 is higher in 1, not distinguishable in 1 of 2 settings." in told


def test_differences_are_told_with_what_they_leave_open() -> None:
    assert difference_text(METRIC, Interval(3, -12.0, 4.0)) == "-12.0 ms ± 4.00 ms"
    assert difference_text(METRIC, Interval(3, 2.0, 4.0)) == "+2.00 ms ± 4.00 ms (not distinguishable)"
    assert difference_text(METRIC, Interval(3, 0.0, 0.0)) == "none: every seed gave the same"
    assert difference_text(METRIC, Interval(1, 2.0, None)) == "+2.00 ms"
    assert difference_text("slo.attainment", Interval(3, 0.02, 0.01)) == "+2 points ± 1 points"


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    sweep = made((SYSTEMS,), (1.0, 2.0, 3.0))
    assert verdicts(sweep, [METRIC]) == []
    assert headline(sweep, [METRIC]) == ["Best by TTFT mean: system=a (1.00 ms)."]
    assert remarks(sweep)[0].startswith("one seed: there is no interval")
    page = sweep_page(sweep, "servetwin sweep", [METRIC], [METRIC])
    assert "95 %" not in page and "one run each" in page and "One run of each setting" in page


def test_the_best_is_named_with_those_that_may_be_as_good() -> None:
    axis = SweepAxis("engine.max_num_seqs", ("1", "2", "4"))
    far, least, near = (30.0, 31.0, 32.0), (10.0, 14.0, 12.0), (10.5, 13.0, 13.5)
    (told,) = headline(made((axis, SEEDS), (*far, *least, *near)), [METRIC])
    assert told.startswith("Best by TTFT mean: engine.max_num_seqs=2 (12.0 ms ± ")
    assert told.endswith(", not distinguishable from engine.max_num_seqs=4.")
    page = sweep_page(made((axis, SEEDS), (*far, *least, *near)), "servetwin sweep", [METRIC], [METRIC])
    assert "Best by TTFT mean" in page and "95 %" in page and "mean over seeds" in page


def test_more_of_an_attainment_is_better() -> None:
    sweep = made((SYSTEMS,), (0.5, 0.9, 0.9), "slo.attainment")
    assert headline(sweep, USUAL) == ["Best by SLO attainment: system=b and system=c (90 %)."]
    same = made((SYSTEMS,), (1.0, 1.0, 1.0), "slo.attainment")
    assert headline(same, USUAL) == ["SLO attainment is the same in every setting: 100 %."]


def test_the_best_is_told_for_each_load() -> None:
    rates, two = SweepAxis("trace.rate_per_s", ("1", "2")), SweepAxis("system", ("a", "b"))
    (told,) = headline(made((two, rates), (10.0, 40.0, 20.0, 30.0)), [METRIC])
    one, other = "at trace.rate_per_s=1 system=a (10.0 ms)", "at trace.rate_per_s=2 system=b (30.0 ms)"
    assert told == f"Best by TTFT mean: {one}; {other}."
    many = SweepAxis("trace.rate_per_s", ("1", "2", "3", "4", "5"))
    (told,) = headline(made((two, many), (1.0, 1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 2.0, 3.0, 3.0)), [METRIC])
    assert told == "Best by TTFT mean: system=a in 3, system=b in 2 of 5 values of trace.rate_per_s."


def test_loads_alone_have_a_least_and_a_most() -> None:
    axis = SweepAxis("trace.rate_per_s", ("1", "2", "4"))
    (told,) = headline(made((axis,), (30.0, 10.0, 20.0)), [METRIC])
    assert told == (
        "TTFT mean is least at trace.rate_per_s=2 (10.0 ms) and most at trace.rate_per_s=1 (30.0 ms)."
    )
    far, least, near = (30.0, 31.0, 32.0), (10.0, 14.0, 12.0), (10.5, 13.0, 13.5)
    (told,) = headline(made((axis, SEEDS), (*far, *least, *near)), [METRIC])
    assert told.endswith("; not distinguishable from the least: trace.rate_per_s=4.")
    assert headline(made((axis,), (30.0, None, None)), [METRIC]) == []
    assert headline(made((axis,), (1.0, 2.0, 3.0)), []) == []


def test_a_number_of_which_nobody_knows_what_is_better_has_ends() -> None:
    (told,) = headline(made((SYSTEMS,), (1.0, 2.0, 3.0), "loads.count"), ["loads.count"])
    assert told == "loads.count is least at system=a (1.00) and most at system=c (3.00)."


def test_settings_are_judged_by_what_was_asked_for() -> None:
    assert judges(None) == USUAL == ("slo.attainment", "ttft_ms.p99")
    assert judges(["tpot_ms.mean", "ttft_ms.mean"]) == ("tpot_ms.mean", "ttft_ms.mean")


@pytest.mark.parametrize(
    ("texts", "is_log"), [(("1", "19"), False), (("1", "20"), True), (("0", "90"), False)]
)
def test_values_over_more_than_a_decade_lie_on_a_logarithmic_axis(
    texts: tuple[str, str], is_log: bool
) -> None:
    page = sweep_page(made((SweepAxis("cluster.nic_gbps", texts),), (3.0, 4.0)), "servetwin sweep", [METRIC])
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


def test_settings_whose_instances_start_differently_are_told_first() -> None:
    """Where parameters come from is what systems compete in; what else a start takes is not."""

    def compared(*starts: tuple[float, float]) -> list[str]:
        axis = SweepAxis("system", tuple("abc"[: len(starts)]))
        points = tuple(Point(place, (), (("system", text),)) for place, text in enumerate(axis.texts))
        numbers = [
            {"starts.median_s.total": total, "starts.median_s.weights": part} for total, part in starts
        ]
        told = remarks(SweepRuns((axis,), points, tuple(map(PointOutcome, numbers))))
        assert all("one seed" in line for line in told[1:])
        return [line for line in told if "one seed" not in line]

    assert compared((2.0, 1.5), (14.0, 13.5)) == []  # SSD beside multicast, both pooled
    (told,) = compared((2.0, 1.5), (103.0, 13.0), (50.0, 10.0))
    assert told == (
        "instances start differently: beside the transfer of parameters a start takes 500 ms with system=a "
        "and 90.0 s with system=b; what differs between the two may be due to that"
    )
    assert compared((36.0, 1.0)) == [] and compared((36.0, 1.0), (60.0, 12.0)) == []
