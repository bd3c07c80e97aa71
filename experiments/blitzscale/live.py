"""Live scaling on and off: what ZigZag adds, which scheduler, and what its counters say."""

from math import inf
from typing import Final

from experiments.blitzscale import cluster_b
from experiments.blitzscale.levels import SHOWN, inputs, levels
from experiments.blitzscale.more_set_ups import live_cases, six_24b
from experiments.blitzscale.set_ups import AZURE_CODE_8B, BLITZ, MULTICAST, three
from experiments.common.compare import joined, judged_row, ratio_row, values_of
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import MEAN_TTFT, P99_TTFT, Metric, Outcomes, RunOutcome, summary_metric
from experiments.common.paired import mean_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, about, at_least, at_most, shorter
from servetwin.report.number_text import number

_NOT_LONGER: Final = at_most(1.0, "not longer", "own_analysis")
_ZIGZAG: Final = shorter(50)  # section 1: "50 % tail latency reduction under bursty workloads"
_SAME: Final = Claim("no worse than the integer program (read as within the band)", -inf, 1.0)
# Figure 21: tokens "even with a few loaded layers (e.g., at time 500 ms)"; all parameters at 1,200 ms.
_FROM_500: Final = about(500, "500 ms")
_AFTER: Final = at_least(1200, "not before all parameters, 1,200 ms", "paper_number")
_LAYERS: Final = at_least(2, "more than one number of layers at a time", "own_analysis")


def _layer_counts(run: RunOutcome) -> float | None:
    live = run.summary.get("live")
    counts = live.get("layer_counts_seen") if isinstance(live, dict) else None
    return None if counts is None else float(len(counts))


def _first_token_ms(run: RunOutcome) -> float:
    return float((run.arrival_s + run.ttft_ms / 1e3).min() * 1e3)


FIRST_TOKEN: Final = Metric("first token", "ms", "requests", _first_token_ms)
PASSES: Final = summary_metric("passes of some layers", "", "live.passes")
REQUESTS: Final = summary_metric("requests in them", "", "live.requests")
USED: Final = summary_metric("plans used", "", "live.plans_used")
REFUSED: Final = summary_metric("plans refused", "", "live.plans_refused")
LATE: Final = summary_metric("plans late", "", "live.plans_late")
COUNTS: Final = Metric("numbers of layers", "", "live.layer_counts_seen", _layer_counts)
_SHOWN: Final = {
    **SHOWN,
    "passes / requests / numbers of layers": (PASSES, REQUESTS, COUNTS),
    "plans used / refused / late": (USED, REFUSED, LATE),
}


def cases() -> tuple[Case, ...]:
    """Every scheduler in every workload, and the systems beside them."""
    return (*six_24b(), *(case for set_up in three() for case in live_cases(set_up)), *cluster_b.cases())


def live(outcomes: Outcomes) -> Figure:
    """Against multicast alone, against AllCache on the cluster without NVLink, among schedulers; counters."""
    rows = [row for set_up in three() for row in _rows(outcomes, set_up)] + _tokens(outcomes)
    panels = tuple(_panel(outcomes, set_up) for set_up in three())
    note = "only the 50 % are a number of the paper; the other rows ask for what live scaling promises"
    return Figure(
        "live",
        "Live scaling, on and off",
        tuple(rows),
        panels=panels,
        inputs=(note, *inputs(outcomes, cases())),
        levels=levels(outcomes, cases(), _SHOWN),
        sweeps=cluster_b.saved(outcomes),
    )


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    systems = {case.label: case for case in live_cases(set_up)}
    ours, rows = systems[BLITZ], []

    def add(label: str, claim: Claim, metric: Metric, case: Case = ours) -> None:
        name = f"{set_up.name}: {metric.label}, {case.label} over {label}"
        rows.append(ratio_row(outcomes, name, claim, metric, ours=case, other=systems[label]))

    for metric in (MEAN_TTFT, P99_TTFT):
        add(MULTICAST, _NOT_LONGER, metric)
        add(f"{BLITZ}, stop", _NOT_LONGER, metric)
        add(f"{BLITZ}, ilp", _SAME, metric)
    add(f"{BLITZ}, best_effort", _NOT_LONGER, MEAN_TTFT)
    add(f"{BLITZ}, best_effort", _ZIGZAG, P99_TTFT)
    if set_up == AZURE_CODE_8B:
        rows += cluster_b.rows(outcomes)
    for case in (ours, systems[f"{BLITZ}, ilp"], systems[f"{BLITZ}, best_effort"]):
        rows.append(_counters_row(outcomes, case))
    return rows


def _tokens(outcomes: Outcomes) -> list[FigureRow]:
    """Figure 21: when the first token comes while six instances load; a decode instance is the partner."""
    why = "no prefill instance at the start: a decode instance runs the layers that are missing"
    return [
        judged_row(
            outcomes,
            f"Figure 21: first token after the first request, {case.label}",
            claim,
            (case,),
            values_of(FIRST_TOKEN),
            why=why,
            write=_ms,
            moves=False,
        )
        for case, claim in zip(six_24b(), (_FROM_500, _AFTER), strict=True)
    ]


def _ms(value: float) -> str:
    return f"{value:,.0f} ms"


def _counters_row(outcomes: Outcomes, case: Case) -> FigureRow:
    """Return the row which shows that instances ran with a growing part of their layers."""
    counters = [
        f"{metric.label} {number(mean_of(values).value)}"
        for metric in (PASSES, REQUESTS, USED, REFUSED, LATE)
        if (values := metric.of(outcomes.of(case)))
    ]
    name, why = f"{case.set_up.name}: layers of a pass, {case.label}", joined(*counters) or "no counters"
    return judged_row(outcomes, name, _LAYERS, (case,), values_of(COUNTS), why=why, moves=False)


def _panel(outcomes: Outcomes, set_up: SetUp) -> Panel:
    """Mean and P99 by system."""
    systems, lines = live_cases(set_up), []
    for metric in (MEAN_TTFT, P99_TTFT):
        points = [(x, metric.of(outcomes.of(case))) for x, case in enumerate(systems)]
        known = [(float(x), sum(values) / len(values)) for x, values in points if values]
        lines.append(PlotLine(metric.label, [x for x, _ in known], [y for _, y in known], "o"))
    names = tuple(case.label.removeprefix(f"{BLITZ}, ") for case in systems)
    return Panel(set_up.name, "", "TTFT (ms)", tuple(lines), log_y=True, ticks=names)
