"""TokenScale beside the autoscalers of its paper, and autoscalers of pods beside live scaling.

Inputs: ``inputs.yaml``, tokenscale and pods_and_live.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Final

from experiments.common.figure import Figure, FigureRow, MeasuredPoint, Panel, PlotLine
from experiments.common.outcomes import GPU_TIME, Metric, Outcomes, summary_metric
from experiments.common.paired import Estimated, mean_of, ratio_of
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.verdict import Claim, at_least, judged_over, shorter, within
from experiments.scalers.inputs import inputs, sentences
from servetwin.report.number_text import number

LOADS: Final = ("0.1", "0.25")
"""Mean load over what all GPUs can do."""
_WINDOW: Final = ("trace.window=busiest", "trace.window_s=900")
TRACES: Final[Mapping[str, Words]] = {
    "Azure code": ("trace=azure_code", *_WINDOW),
    "Azure conversation": ("trace=azure_conv", *_WINDOW),
    "bursts": ("trace=burstgpt_like", "trace.duration_s=900"),
}
ATTAINMENT: Final = summary_metric("requests within the objectives", "", "slo.attainment")
OVER_BOUND: Final = summary_metric("GPU time over the bound", "", "control.over_bound")
REVERSALS: Final = summary_metric("reversals", "", "control.reversals")
SHOWN: Final[Mapping[str, Metric]] = {
    "within objectives": ATTAINMENT,
    "P99 TTFT, ms": summary_metric("P99 TTFT", "ms", "ttft_ms.p99"),
    "P99 TPOT, ms": summary_metric("P99 TPOT", "ms", "tpot_ms.p99"),
    "GPU-seconds": GPU_TIME,
    "over the bound": OVER_BOUND,
    "reversals": REVERSALS,
}
_PODS: Final[Words] = ("system=serverlessllm",)
_HPA: Final[Words] = (
    *_PODS,
    "system/scaler=hpa",
    "system.scaler.metric=concurrency",
    "system.scaler.target=16",
)
_KEDA: Final[Words] = (
    *_PODS, "system/scaler=keda", "system.scaler.metric=concurrency", "system.scaler.threshold=16",
)  # fmt: skip
_AIBRIX: Final[Words] = (
    *_PODS, "system/scaler=kpa", "system.scaler.metric=concurrency", "system.scaler.target=16",
    "system.scaler.stable_s=180", "system.scaler.panic_s=60", "system.scaler.max_up_rate=2",
)  # fmt: skip
_SLOW: Final[Words] = ("system.instances.start_total_s=103",)
OF_TOKENSCALE: Final[Mapping[str, Words]] = {
    "tokenscale": ("system=tokenscale",),
    "its scaler alone": (*_PODS, "system/scaler=tokenscale"),
    "distserve": _HPA,
    "aibrix": _AIBRIX,
    "blitzscale": ("system=blitzscale",),
}
PODS_AND_LIVE: Final[Mapping[str, Words]] = {
    "blitzscale": ("system=blitzscale",),
    "hpa, processes run": _HPA,
    "keda, processes run": _KEDA,
    "hpa, pods of 103 s": (*_HPA, *_SLOW),
    "keda, pods of 103 s": (*_KEDA, *_SLOW),
}
_SAVED: Final = "others"


def settings() -> list[tuple[str, str]]:
    """(trace, load) of every comparison."""
    return [(trace, load) for trace in TRACES for load in LOADS]


def _set_up(trace: str, load: str, cluster: str, model: str) -> SetUp:
    words = (
        f"cluster={cluster}", f"model={model}", "engine=blitz_native", "slo.ttft_ms=450", "slo.tpot_ms=150",
        f"trace.utilization={load}", "uncertainty=off",
    )  # fmt: skip
    return SetUp(f"{trace} at {load}, {model} on {cluster}", words, TRACES[trace], rate="written")


def _tokenscale(trace: str, load: str, system: str) -> Case:
    return Case(system, _set_up(trace, load, "p4d_24xlarge_2x8", "llama3_1_8b"), OF_TOKENSCALE[system])


def _pods(trace: str, load: str, system: str) -> Case:
    return Case(system, _set_up(trace, load, "blitz_b", "llama3_8b"), PODS_AND_LIVE[system])


def tokenscale_cases(_: int = 0) -> list[Case]:
    """Every system on every trace."""
    return [_tokenscale(*setting, system) for setting in settings() for system in OF_TOKENSCALE]


def pods_cases(_: int = 0) -> list[Case]:
    """Every system on every trace."""
    return [_pods(*setting, system) for setting in settings() for system in PODS_AND_LIVE]


def tokenscale(outcomes: Outcomes) -> Figure:
    """Attainment against the paper's ranges, cost against the cheapest and the best of the others."""
    rows = [row for setting in settings() for row in _rows(outcomes, *setting)]
    return _figure(
        "tokenscale", "TokenScale beside DistServe, BlitzScale and AIBrix", tuple(rows), outcomes,
        {(*where, system): _tokenscale(*where, system) for where in settings() for system in OF_TOKENSCALE},
    )  # fmt: skip


def pods_and_live(outcomes: Outcomes) -> Figure:
    """What pods cost beside live scaling; no published number is compared."""
    rows = [row for setting in settings() for row in _live_rows(outcomes, *setting)]
    return _figure(
        "pods_and_live", "HPA and KEDA beside live scaling", tuple(rows), outcomes,
        {(*setting, system): _pods(*setting, system) for setting in settings() for system in PODS_AND_LIVE},
    )  # fmt: skip


def _rows(outcomes: Outcomes, trace: str, load: str) -> list[FigureRow]:
    claims = inputs()["tokenscale"]["claims"]
    found = {system: outcomes.of(_tokenscale(trace, load, system)) for system in OF_TOKENSCALE}
    attained = {system: ATTAINMENT.of(runs) or [0.0] for system, runs in found.items()}
    cost = {system: GPU_TIME.of(runs) or [0.0] for system, runs in found.items()}
    low, high = (share / 100 for share in claims["attainment_percent"])
    sizes = ", ".join(f"{system} {number(fmean(values))}" for system, values in attained.items())
    of_own = within(low, high, "80 to 96 %", "paper_number")
    rows = [
        _row(
            f"{trace} at {load}", "attainment of TokenScale", of_own, mean_of(attained["tokenscale"]), sizes
        ),
    ]
    others = ["distserve", "aibrix", "blitzscale"]
    least, most = (share / 100 for share in claims["attainment_of_others_percent"])
    of_others = within(least, most, "50 to 88 %", "paper_number")
    rows += [
        _row(f"{trace} at {load}", f"attainment of {system}", of_others, mean_of(attained[system]), sizes)
        for system in others
    ]
    best = max(others, key=lambda system: fmean(attained[system]))
    least, most = claims["cost_below_others_percent"]
    claim = shorter(least, most, "cheaper")
    ratio = ratio_of(cost["tokenscale"], cost[best]) or Estimated(1.0, None, None)
    why = ", ".join(f"{system} {number(fmean(values))} GPU s" for system, values in cost.items())
    rows.append(_row(f"{trace} at {load}", f"cost over {best}, the best of the others", claim, ratio, why))
    return rows


def _live_rows(outcomes: Outcomes, trace: str, load: str) -> list[FigureRow]:
    live = ATTAINMENT.of(outcomes.of(_pods(trace, load, "blitzscale"))) or [0.0]
    rows = []
    for system in PODS_AND_LIVE:
        if system != "blitzscale":
            other = ATTAINMENT.of(outcomes.of(_pods(trace, load, system))) or [0.0]
            ratio = ratio_of(live, other) or Estimated(0.0, None, None)
            claim = at_least(1.0, "live scaling serves no fewer requests well")
            why = f"{number(fmean(live))} against {number(fmean(other))}"
            rows.append(
                _row(f"{trace} at {load}", f"attainment of blitzscale over {system}", claim, ratio, why)
            )
    return rows


def _row(where: str, name: str, claim: Claim, estimate: Estimated, why: str) -> FigureRow:
    row = judged_over(f"{where}: {name}", claim, estimate, why=why)
    return replace(row, saved=((_SAVED, where),))


def _figure(
    name: str,
    title: str,
    rows: tuple[FigureRow, ...],
    outcomes: Outcomes,
    cases: Mapping[tuple[str, str, str], Case],
) -> Figure:
    numbers = tuple(
        MeasuredPoint(trace, metric, system, float(load), tuple(values))
        for (trace, load, system), case in cases.items()
        for metric, read in SHOWN.items()
        if (values := read.of(outcomes.of(case)))
    )
    levels = tuple(_level(*setting, outcomes, case) for setting, case in cases.items())
    return Figure(
        name,
        title,
        rows,
        panels=_panels(outcomes, cases),
        inputs=sentences(name),
        levels=levels,
        sweeps={
            (_SAVED, where): [dict(one) for one in levels if one["trace"] == where]
            for where in dict.fromkeys(one["trace"] for one in levels)
        },
        numbers=numbers,
        columns=len(TRACES),
    )


def _level(trace: str, load: str, system: str, outcomes: Outcomes, case: Case) -> dict[str, str]:
    runs = outcomes.of(case)
    cells = {name: metric.of(runs) for name, metric in SHOWN.items()}
    shown = {name: number(mean_of(values).value) if values else "" for name, values in cells.items()}
    return {"trace": f"{trace} at {load}", "system": system, **shown}


def _panels(outcomes: Outcomes, cases: Mapping[tuple[str, str, str], Case]) -> tuple[Panel, ...]:
    """Attainment against GPU time, a row for each load: above and to the left is better."""
    panels = []
    for wanted in dict.fromkeys(load for _, load, _ in cases):
        for trace in TRACES:
            lines = []
            for (of_trace, load, system), case in cases.items():
                attained, cost = ATTAINMENT.of(outcomes.of(case)), GPU_TIME.of(outcomes.of(case))
                if (of_trace, load) == (trace, wanted) and attained and cost:
                    lines.append(PlotLine(system, [fmean(cost) / 3600], [100 * fmean(attained)], "o"))
            title, x_label = f"{trace}, load {wanted}", "GPU-hours held"
            panels.append(Panel(title, x_label, "% within objectives", tuple(lines)))
    return tuple(panels)
