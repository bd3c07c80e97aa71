"""Figure 20: what each technique adds, step by step, from two bases.

+Network is shown with seats beside a holder first, as the planner has it, and without (apart): then a load
takes links inside a host only when its source happens to be there. With a cache as base that can be slower
than a hit: one-to-one over 100 Gbps against PCIe.
"""

from typing import Final

from experiments.blitzscale.levels import inputs, levels
from experiments.blitzscale.more_set_ups import ALL_SSD, APART, ablation
from experiments.blitzscale.set_ups import BLITZ, MULTICAST, NETWORK, three
from experiments.common.compare import order_row, ratio_row
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import MEAN_TBT, MEAN_TTFT, P99_TTFT, Metric, Outcomes
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, at_most, below

# BlitzScale (OSDI 2025), section 6.3: "all techniques are effective", the bars have no numbers.
_SHORTER: Final = below(1.0, "shorter (drawn, no number)", "paper_direction")
# Multicast "is less effective in BurstGPT", where no two instances start at once: it may change nothing.
_LESS: Final = at_most(1.05, "little effect (read as not 5 % longer)", "paper_direction")
_STEPS: Final = (
    ("+Network", "serverlessllm", NETWORK),
    ("+Network apart", "serverlessllm", APART),
    ("+Network", ALL_SSD, NETWORK),
    ("+Network apart", ALL_SSD, APART),
    ("+Multicast", NETWORK, MULTICAST),
    ("+Multicast", APART, MULTICAST),
    ("+ZigZag", MULTICAST, BLITZ),
)
_ORDERS: Final = {
    "S-LLM as base": (BLITZ, MULTICAST, NETWORK, "serverlessllm"),
    "S-LLM as base, +Network apart": (BLITZ, MULTICAST, APART, "serverlessllm"),
    "all-SSD as base": (BLITZ, MULTICAST, NETWORK, ALL_SSD),
    "all-SSD as base, +Network apart": (BLITZ, MULTICAST, APART, ALL_SSD),
}


def cases() -> tuple[Case, ...]:
    """The ablation of each workload."""
    return tuple(case for set_up in three() for case in ablation(set_up))


def fig20(outcomes: Outcomes) -> Figure:
    """Every step's effect on TTFT, the orders, and what steps do for the time between tokens."""
    rows = [row for set_up in three() for row in _rows(outcomes, set_up)]
    panels = [_panel(outcomes, metric) for metric in (MEAN_TTFT, P99_TTFT)]
    return Figure(
        "fig20", "Figure 20: ablation", tuple(rows), panels=tuple(panels), inputs=inputs(outcomes, cases()),
        levels=levels(outcomes, cases()),
    )  # fmt: skip


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    systems = {case.label: case for case in ablation(set_up)}
    rows = []
    for metric in (MEAN_TTFT, P99_TTFT):
        for step, base, ours in _STEPS:
            name = f"{set_up.name}: {step} over {base}, {metric.label}"
            rows.append(
                ratio_row(
                    outcomes, name, _claim(set_up, ours), metric, ours=systems[ours], other=systems[base]
                )
            )
    for name, labels in _ORDERS.items():
        ordered = [systems[label] for label in labels]
        rows.append(order_row(outcomes, f"{set_up.name}: order of mean TTFT, {name}", MEAN_TTFT, ordered))
    name = f"{set_up.name}: all steps over {ALL_SSD}, {MEAN_TBT.label}"
    rows.append(ratio_row(outcomes, name, _SHORTER, MEAN_TBT, ours=systems[BLITZ], other=systems[ALL_SSD]))
    return rows


def _claim(set_up: SetUp, ours: str) -> Claim:
    return _LESS if set_up.short() == "BurstGPT" and ours == MULTICAST else _SHORTER


def _panel(outcomes: Outcomes, metric: Metric) -> Panel:
    """The steps from left to right, one line per workload."""
    lines, labels = [], [case.label for case in ablation(three()[0])]
    for set_up in three():
        points = [(x, metric.of(outcomes.of(case))) for x, case in enumerate(ablation(set_up))]
        known = [(float(x), sum(values) / len(values)) for x, values in points if values]
        lines.append(PlotLine(set_up.name, [x for x, _ in known], [y for _, y in known], "o-"))
    return Panel(metric.label, "", f"{metric.label} (ms)", tuple(lines), log_y=True, ticks=tuple(labels))
