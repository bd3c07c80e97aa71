"""Figure 18: GPU time and objectives on AzureConv with 24B, in both sizes of the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from experiments.blitzscale.levels import inputs, levels, percent
from experiments.blitzscale.set_ups import AZURE_CONV_24B, AZURE_CONV_24B_16, BLITZ, all_systems, workloads
from experiments.common.compare import judged_row, measured, ratio_row
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import (
    GPU_TIME,
    MEAN_TBT,
    MEAN_TTFT,
    P99_TTFT,
    Metric,
    Outcomes,
    RunOutcome,
    violations,
)
from experiments.common.paired import mean_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, about, at_most, below, shorter, times

Shares = Callable[[Sequence[Sequence[RunOutcome]]], list[float]]

# BlitzScale (OSDI 2025), section 6.2, of BlitzScale over the system named.
_SAID: Final[tuple[tuple[str, Metric, Claim], ...]] = (
    ("serverlessllm", MEAN_TTFT, shorter(48.1)),
    ("serverlessllm", MEAN_TBT, shorter(1.8)),
    ("serverlessllm", GPU_TIME, shorter(19.46, comparative="less")),
    ("distserve_full", GPU_TIME, times(0.5, "50 % of it")),
    ("distserve_half", GPU_TIME, about(1.0, "the same", "paper_direction")),
    ("distserve_half", MEAN_TTFT, shorter(95.8)),
    ("distserve_half", MEAN_TBT, shorter(1.0)),
)
_OBJECTIVE: Final = 5.0  # times an average latency
# Section 6 and the artefact's for 8B and 72B.
_LIMITS_MS: Final = ((450.0, 150.0), (1250.0, 200.0))
_SHARES: Final = {
    BLITZ: at_most(0.001, "as distserve_full: none", "paper_direction"),
    "serverlessllm": about(0.187, "18.7 %"),
}
_MEAN_S: Final = 10
_UNSAID: Final = Claim("no share given", 0.0, 1.0)
_DRAWN: Final = (BLITZ, "serverlessllm", "distserve_full", "distserve_half")


def cases() -> tuple[Case, ...]:
    """Every system of Figure 17 in all its workloads."""
    return tuple(case for set_up in workloads() for case in all_systems(set_up).values())


def fig18(outcomes: Outcomes) -> Figure:
    """Compare the paper's claims about 24B on AzureConv.

    Below them are objectives and GPU time where the paper gives no number.
    """
    rows: list[FigureRow] = []
    set_ups = (AZURE_CONV_24B, AZURE_CONV_24B_16)
    for set_up in set_ups:
        rows += _statements(outcomes, set_up) + _objectives(outcomes, set_up)
    for set_up in workloads():
        if set_up not in set_ups:
            claim = below(1.0, "below it (said of AzureConv alone)", "own_analysis")
            rows.append(_ratio_over(outcomes, set_up, "distserve_full", GPU_TIME, claim))
            rows += _objectives(outcomes, set_up)
    panels = [panel for set_up in set_ups if (panel := _panel(outcomes, set_up)) is not None]
    own_cases = [case for set_up in set_ups for case in all_systems(set_up).values()]
    return Figure(
        "fig18", "Figure 18: GPU time under AzureConv with 24B", tuple(rows), panels=tuple(panels),
        inputs=inputs(outcomes, own_cases), levels=levels(outcomes, own_cases),
    )  # fmt: skip


def _statements(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    return [_ratio_over(outcomes, set_up, base, metric, claim) for base, metric, claim in _SAID]


def _ratio_over(outcomes: Outcomes, set_up: SetUp, base: str, metric: Metric, claim: Claim) -> FigureRow:
    systems, name = all_systems(set_up), f"{set_up.name}: {metric.label} over {base}"
    return ratio_row(outcomes, name, claim, metric, ours=systems[BLITZ], other=systems[base])


def _objectives(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    """The shares of 24B are given under 5x "the average"; whose average it is, is not."""
    systems, rows = all_systems(set_up), []
    for name, claim in _SHARES.items():
        case = systems[name]
        claim_of_set_up = claim if set_up.short() == "AzureConv" else None
        for base in ("distserve_full", BLITZ):
            label = f"{set_up.name}: requests beyond 5x the mean of {base}, {name}"
            rows.append(_share(outcomes, label, claim_of_set_up, _of_average, (case, systems[base])))
        for ttft_ms, tbt_ms in _LIMITS_MS:
            label = f"{set_up.name}: requests beyond {ttft_ms:g}/{tbt_ms:g} ms, {name}"
            rows.append(_share(outcomes, label, None, _violations_beyond(ttft_ms, tbt_ms), (case,)))
    return rows


def _share(
    outcomes: Outcomes, name: str, claim: Claim | None, read: Shares, cases: Sequence[Case]
) -> FigureRow:
    """claim: None where the paper gives no share. read: shares by seed from the runs of all cases."""
    why = measured(outcomes, P99_TTFT, cases[0])
    if claim is not None:
        return judged_row(outcomes, name, claim, cases, read, why=why, write=percent)
    why_not, shown = outcomes.why_not(*cases), ""
    if not why_not:
        shown = mean_of(read([outcomes.of(case) for case in cases])).shown(percent)
        why_not = f"the paper gives no share for this workload and objective: {shown}; {why}"
    return replace(_UNSAID.not_comparable(name, cases[0].set_up.stand_in, why_not), ours=shown)


def _of_average(runs: Sequence[Sequence[RunOutcome]]) -> list[float]:
    return missed(runs[0], runs[1])


def _violations_beyond(ttft_ms: float, tbt_ms: float) -> Shares:
    return lambda runs: [violations(run, ttft_ms, tbt_ms) for run in runs[0]]


def missed(ours: Sequence[RunOutcome], base: Sequence[RunOutcome]) -> list[float]:
    """Seed by seed: share of requests beyond five times the mean TTFT or TBT of a base."""
    shares = []
    for run, other in zip(ours, base, strict=False):
        ttft_ms, tbt_ms = other.at("ttft_ms.mean"), other.at("itl_ms.mean")
        limits = (float("inf") if ms is None else _OBJECTIVE * ms for ms in (ttft_ms, tbt_ms))
        shares.append(violations(run, *limits))
    return shares


def _panel(outcomes: Outcomes, set_up: SetUp) -> Panel | None:
    """GPUs provisioned over time, first seed."""
    each, lines = int(set_up.word("model.tp", "1")), []
    for label in _DRAWN:
        runs = outcomes.of(all_systems(set_up)[label])
        if runs and "instances" in runs[0].timelines:
            x, y = runs[0].timelines["instances"]
            whole = len(x) // _MEAN_S * _MEAN_S  # points are a second apart
            bins_s, means = (part[:whole].reshape(-1, _MEAN_S).mean(axis=1) for part in (x, y * each))
            lines.append(PlotLine(label, bins_s.tolist(), means.tolist()))
    title = f"GPUs provisioned, mean of {_MEAN_S} s"
    return Panel(set_up.name, "time (s)", title, tuple(lines)) if lines else None
