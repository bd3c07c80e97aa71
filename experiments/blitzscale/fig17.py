"""Figure 17: three workloads, time to first token and between tokens, and the shapes over time.

All elastic systems have one load monitor with the same thresholds, but for the reading of ServerlessLLM with
its scaler as shipped. BlitzScale alone turns prefill instances into decode ones and scales live. The last
rows are readings of AzureCode that keep fewer instances; they have no verdict.
"""

from collections.abc import Callable
from typing import Final

from experiments.blitzscale.kept import code_cases, code_rows
from experiments.blitzscale.levels import inputs, levels
from experiments.blitzscale.set_ups import BLITZ, all_systems, serverless, workloads
from experiments.common.compare import (
    joined,
    judged_row,
    measured,
    order_row,
    over_time,
    ratio_row,
    ratios_of,
)
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import (
    LOAD_TIME,
    MEAN_TBT,
    MEAN_TTFT,
    MISS_RATE,
    P99_TBT,
    P99_TTFT,
    Metric,
    Outcomes,
    RunOutcome,
)
from experiments.common.paired import geometric_mean_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, about, at_least, at_most, shorter
from servetwin.report.number_text import number

Statement = tuple[str, Metric, Claim]

# BlitzScale (OSDI 2025), section 6.1, of BlitzScale over the system named.
_SAID: Final[dict[str, tuple[Statement, ...]]] = {
    "BurstGPT": (
        ("serverlessllm", MEAN_TTFT, shorter(75.5)),
        ("allcache", MEAN_TTFT, shorter(21.1)),
        ("serverlessllm", MEAN_TBT, shorter(7.4)),
        ("allcache", MEAN_TBT, shorter(5.1)),
    ),
    "AzureCode": (
        ("serverlessllm", MEAN_TTFT, shorter(47, 75)),
        ("serverlessllm", MEAN_TBT, shorter(94.1)),
        ("allcache", MEAN_TBT, shorter(88.3)),
    ),
    "AzureConv": (
        ("serverlessllm", MEAN_TTFT, shorter(47, 75)),
        ("serverlessllm", MEAN_TBT, shorter(1.8)),
        ("allcache", MEAN_TBT, shorter(0.7)),
    ),
}
# "Lowest TTFT and TBT in all workloads"; its distributions are drawn and have no numbers.
_LOWEST: Final = at_most(1.0, "not above it (drawn, no number)", "paper_direction")
# Our readings: a spike is at least twice AllCache's mean, "close" is within the band of all figures.
_SPIKE: Final = at_least(2.0, "a spike (read as 2 times at least)", "paper_direction")
_CLOSE: Final = about(1.0, "close to AllCache", "paper_direction")
_BURST_S: Final = 40.0  # seconds from an onset on: its height and its fall
_DRAWN: Final = (BLITZ, "serverlessllm", "allcache", "distserve_full")


def cases() -> tuple[Case, ...]:
    """Every system in every workload; the static ones are Figure 18's."""
    judged = tuple(case for set_up in workloads() for case in all_systems(set_up).values())
    return (*judged, *code_cases())


def fig17(outcomes: Outcomes) -> Figure:
    """The paper's statements, tails, orders and shapes; and what every system measured."""
    rows = [row for set_up in workloads() for row in _rows(outcomes, set_up)] + code_rows(outcomes)
    panels = [panel for set_up in workloads() if (panel := _panel(outcomes, set_up)) is not None]
    return Figure(
        "fig17",
        "Figure 17: three workloads",
        tuple(rows),
        panels=tuple(panels),
        inputs=inputs(outcomes, cases()),
        levels=levels(outcomes, cases()),
    )


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    systems, statements = all_systems(set_up), _SAID[set_up.short()]
    tails = [
        (base, metric, _LOWEST) for metric in (P99_TTFT, P99_TBT) for base in ("serverlessllm", "allcache")
    ]
    if not any(base == "allcache" and metric is MEAN_TTFT for base, metric, _ in statements):
        tails.insert(0, ("allcache", MEAN_TTFT, _LOWEST))
    first = next(
        claim for base, metric, claim in statements if base == "serverlessllm" and metric is MEAN_TTFT
    )
    readings = [(case.label, MEAN_TTFT, first) for case in serverless(set_up)[1:]]
    rows = [
        ratio_row(
            outcomes,
            f"{set_up.name}: {metric.label} over {base}",
            claim,
            metric,
            ours=systems[BLITZ],
            other=systems[base],
        )
        for base, metric, claim in (*statements, *tails, *readings)
    ]
    ordered = [systems[name] for name in (BLITZ, "allcache", "serverlessllm")]
    rows.append(order_row(outcomes, f"{set_up.name}: order of mean TTFT", MEAN_TTFT, ordered))
    return rows + _shapes(outcomes, set_up, systems["serverlessllm"], systems["allcache"])


def _mean_from(onset_s: float) -> Callable[[RunOutcome], float | None]:
    """Return a function that reads the mean TTFT of the requests that arrive in a burst."""
    return lambda run: run.mean_ttft_ms(onset_s, onset_s + _BURST_S)


def _shapes(outcomes: Outcomes, set_up: SetUp, ours: Case, other: Case) -> list[FigureRow]:
    """Compare ServerlessLLM with AllCache: it is as fast if hosts have copies, slower in a burst if not."""
    name = f"{set_up.name}: mean TTFT of serverlessllm over allcache"
    if set_up.short() == "AzureConv":
        return [ratio_row(outcomes, name, _CLOSE, MEAN_TTFT, ours=ours, other=other)]
    rows = []
    for number_of, onset_s in enumerate(set_up.bursts_s):
        spiked = number_of == 0 or set_up.short() == "AzureCode"
        burst = Metric(
            f"mean TTFT of arrivals from {onset_s:g} to {onset_s + _BURST_S:g} s",
            "ms",
            "ttft_ms of requests by arrival",
            _mean_from(onset_s),
        )
        claim = _SPIKE if spiked else _CLOSE
        rows.append(_burst_row(outcomes, f"{name}, burst {number_of + 1}", claim, burst, (ours, other)))
    return rows


def _burst_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, systems: tuple[Case, Case]
) -> FigureRow:
    """Compare a burst with a claim about the size of the ratio, which has no direction."""
    runs = outcomes.of(systems[0])
    why = joined(
        measured(outcomes, metric, *systems),
        f"mean load of the whole run {number(_mean(LOAD_TIME.of(runs)))} s, misses "
        f"{number(_mean(MISS_RATE.of(runs)))}",
    )
    read = ratios_of(metric, f"{metric.label}: a system has no request there")
    return judged_row(outcomes, name, claim, systems, read, why=why, estimate=geometric_mean_of)


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _panel(outcomes: Outcomes, set_up: SetUp) -> Panel | None:
    """Mean TTFT by arrival, first seed."""
    lines = []
    for label in _DRAWN:
        case = all_systems(set_up)[label]
        if outcomes.of(case):
            x, y = over_time(outcomes, case)
            lines.append(PlotLine(label, x, y))
    if not lines:
        return None
    return Panel(set_up.name, "time of arrival (s)", "mean TTFT (ms) per 5 s", tuple(lines), log_y=True)
