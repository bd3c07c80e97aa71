"""Errors and coverage of simulations beside the measured runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from benchmarks.accuracy.runs import SimulatedRun
from benchmarks.kv_memory import Logged
from servetwin.results.ranges import range_in, value_of
from servetwin.run.ends import near_saturation

# What a page that buyers believe must keep on unsaturated runs, in percent; the last two are of ranges.
MOST_PERCENT: Final = {"ttft_ms.mean": 10.0, "tpot_ms.mean": 4.0, "e2e_ms.mean": 5.0}
LEAST_COVERED: Final = 0.90
MOST_OF_KV: Final = 0.03
# Regimes: by requests that decode at once, up to the number; more than the last; and where requests wait.
BY_DECODING: Final = {"idle: up to 10 decode": 10.0, "loaded: up to 64 decode": 64.0}
MANY: Final = "more than 64 decode"
KNEE: Final = "knee: requests wait at one end of the range"
BEYOND: Final = "beyond: more came than were served"
REGIMES: Final = (*BY_DECODING, MANY, KNEE, BEYOND)
STEPS: Final = ("tpot_ms.mean", "itl_ms.p50")
WAITS: Final = ("ttft_ms.mean", "ttft_ms.p95")
COVERED: Final = ("ttft_ms.mean", "ttft_ms.p90", "tpot_ms.mean", "e2e_ms.mean", "e2e_ms.p90")


@dataclass(frozen=True, slots=True)
class Error:
    """One number of one run: measured, simulated, and the simulation's range (None: it has none)."""

    run: SimulatedRun
    metric: str
    measured: float
    simulated: float
    range: tuple[float, float] | None

    @property
    def percent(self) -> float:
        """How much more than the measured value the simulation has."""
        return 100.0 * (self.simulated / self.measured - 1.0)

    @property
    def covered(self) -> bool:
        """Whether the measured value lies in the range."""
        return self.range is not None and self.range[0] <= self.measured <= self.range[1]

    @property
    def width(self) -> float:
        """High over low of the range."""
        return self.range[1] / self.range[0] if self.range else 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """Errors of one metric: their number, mean of their sizes, bias, P90 of their sizes, ranges."""

    metric: str
    count: int
    mean: float
    bias: float
    p90: float
    covered: float
    width: float


def errors_of(runs: Iterable[SimulatedRun]) -> list[Error]:
    """Every number that was measured and simulated."""
    found = []
    for one in runs:
        for metric, measured in one.run.measured.items():
            value = value_of(one.summary, metric)
            if value is not None:
                found.append(Error(one, metric, measured, value, range_in(one.summary, metric)))
    return found


def rows_of(errors: Sequence[Error]) -> list[Row]:
    """One row per metric, in the order in which the metrics come."""
    return [row_of(metric, [error for error in errors if error.metric == metric])
            for metric in dict.fromkeys(error.metric for error in errors)]  # fmt: skip


def row_of(metric: str, errors: Sequence[Error]) -> Row:
    """Mean, bias, P90, coverage and width of these errors."""
    sizes = sorted(abs(error.percent) for error in errors)
    return Row(
        metric=metric,
        count=len(errors),
        mean=fmean(sizes),
        bias=fmean(error.percent for error in errors),
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        covered=fmean(error.covered for error in errors),
        width=median(error.width for error in errors),
    )


def regime_of(run: SimulatedRun) -> str:
    """How loaded the server was: by decoding requests, or whether a small error decides, as simulated."""
    if run.run.saturated:
        return BEYOND
    if near_saturation(run.summary["range"]):
        return KNEE
    decoding = run.summary["energy"]["decode_batch"]
    return next((name for name, most in BY_DECODING.items() if decoding <= most), MANY)


def covered_share(errors: Sequence[Error]) -> float:
    """The share of means and P90s in their ranges."""
    return fmean(error.covered for error in errors if error.metric in COVERED)


def broken(errors: Sequence[Error]) -> list[str]:
    """What the runs break of the page's limits, as sentences; empty: the page is green."""
    rows = {row.metric: row for row in rows_of(errors)}
    found = [
        f"{metric} is {rows[metric].mean:.1f} % off on average, more than {most:g} %"
        for metric, most in MOST_PERCENT.items()
        if metric in rows and rows[metric].mean > most
    ]
    if (share := covered_share(errors)) < LEAST_COVERED:
        found.append(f"{share:.0%} of means and P90s lie in their ranges, fewer than {LEAST_COVERED:.0%}")
    return found


def broken_memory(logged: Sequence[Logged]) -> list[str]:
    """The same of KV memory, where the flags of the logging server are recorded."""
    off = fmean(abs(value.error) for value in logged if value.flags == "recorded")
    if off <= MOST_OF_KV:
        return []
    return [f"KV memory is {off:.1%} off on average, more than {MOST_OF_KV:.0%}"]
