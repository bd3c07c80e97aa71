"""Figure 13: a tenth of the requests has a high priority; S-S, the burstier the further to the right."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from experiments.common.figure import Figure, FigureRow
from experiments.common.outcomes import Metric, RunOutcome
from experiments.common.panels import panels_of
from experiments.llumnix.judge import CurvePoint, PointJudge
from experiments.llumnix.set_ups import BY_TITLE, CLUSTER_12000, LLUMNIX, system

NAME: Final = "figure13"
BASE: Final = "llumnix_base"
CVS: Final = (2.0, 4.0, 6.0, 8.0)
_RATE_PER_S: Final = 26.0
_HIGH: Final = {"high": 1, "normal": 0}
_SHARE: Final = 0.1
_ORDER: Final = (
    "system.instances.scheduling_policy=before_last"  # the artefact's queue (Scheduler.add_seq_group)
)
_COLUMNS: Final = ("priority", "tpot_ms", "preemption_loss_ms", "output_tokens")


def _seconds(priority: int, key: str, statistic: str, outcome: RunOutcome) -> float | None:
    classes: Any = outcome.summary.get("priorities") or ()
    values = [of_class[key][statistic] for of_class in classes if of_class["priority"] == priority]
    return values[0] / 1e3 if values and values[0] is not None else None


def _execution(priority: int, outcome: RunOutcome) -> float | None:
    """Return the mean time from first to last token, without the time that preemptions took."""
    here = (outcome.columns["priority"] == priority) & ~np.isnan(outcome.columns["tpot_ms"])
    tpot_ms, loss_ms, tokens = (outcome.columns[name][here] for name in _COLUMNS[1:])
    execution_ms = tpot_ms * (tokens - 1) - loss_ms
    return float(np.maximum(execution_ms, 0.0).mean()) / 1e3 if here.any() else None


def _metrics(panel: str) -> Mapping[str, Metric]:
    reads: dict[str, tuple[str, Callable[[RunOutcome], float | None]]] = {}
    for word, key in (("request", "e2e_ms"), ("prefill", "ttft_ms"), ("decode", "tpot_ms")):
        for statistic in ("mean", "p99"):
            label = f"{'mean' if statistic == 'mean' else 'P99'} {word} latency of {panel} priority"
            reads[f"{word}_{statistic}_s"] = label, partial(_seconds, _HIGH[panel], key, statistic)
    reads["decode_execution_s"] = f"decode execution of {panel} priority", partial(_execution, _HIGH[panel])
    return {name: Metric(label, "s", "priorities", read) for name, (label, read) in reads.items()}


METRICS: Final = {panel: _metrics(panel) for panel in _HIGH}


def curves(requests: int) -> list[CurvePoint]:
    """Both systems at every burstiness; a run has both panels."""
    workload = BY_TITLE["S-S"]
    curves_found = []
    for gap_cv in CVS:
        set_up = workload.at(_RATE_PER_S, requests, gap_cv, CLUSTER_12000, _SHARE)
        # llumnix of Figure 11 is llumnix_base; here it is the whole system.
        base = system(LLUMNIX, set_up, workload, columns=_COLUMNS, label=BASE)
        whole = system(LLUMNIX, set_up, workload, extra=("system=llumnix", _ORDER), columns=_COLUMNS)
        for panel in _HIGH:
            for name, case in ((LLUMNIX, whole), (BASE, base)):
                curves_found.append(CurvePoint(panel, name, gap_cv, case, METRICS[panel]))
    return curves_found


def fig13(judge: PointJudge) -> Figure:
    """High priority within 10 % of the points, normal at most 5 % above them; high ones gain."""
    all_curves = curves(judge.requests)
    rows = list[FigureRow]()
    for curve in all_curves:
        if curve.system == LLUMNIX:
            bounds = (0.9, 1.1) if curve.panel == "high" else (0.0, 1.05)
            rows += judge.value(NAME, "request_mean_s", curve, bounds=bounds)
    for gap_cv in CVS:
        placed = [curve for curve in all_curves if (curve.panel, curve.x) == ("high", gap_cv)]
        rows.append(judge.order("request_mean_s", placed))
    numbers = judge.numbers(NAME, all_curves)
    inputs = (
        f"S-S at {_RATE_PER_S:g}/s, {_SHARE:.0%} of the requests drawn by the seed to have a high priority, "
        "with seed 0 the artefact's own; queues and preemption in its order; an instance with one is to hold "
        "1,600 tokens at most",
        "bounds: mean latency of high priority within 10 % of its point, of normal at most 5 % above",
        "decode execution: from the first token to the last, less what preemptions took",
    )
    return Figure(
        "fig13", "Figure 13: priorities", tuple(rows), panels=panels_of(numbers, "CV of gaps"),
        inputs=(*inputs, judge.points.source), numbers=numbers, columns=4,
    )  # fmt: skip
