"""Figure 1: how requests rise within seconds, and how much KV they hold. Llama2-7B under BurstGPT."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from experiments.blitzscale.levels import inputs
from experiments.blitzscale.more_set_ups import burst_7b
from experiments.blitzscale.set_ups import case_of
from experiments.common.compare import judged_row, values_of
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import mean_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, about, times
from hwmodels.catalogue import load_llm
from servetwin.report.number_text import number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# BlitzScale (OSDI 2025), section 2.2; the caption of the figure names AzureConv, the text BurstGPT.
_RISE: Final = times(5.0, "5 times within 2 s")
_MOST: Final = about(760.0, "up to 760 GB")
_LEAST: Final = about(190.0, "from 190 GB")
_SWING: Final = times(4.0, "760 over 190 GB")
_BIN_S: Final = 2.0
_WARM_S: Final = 20.0  # the window starts empty: what requests hold before is not counted


def cases() -> tuple[Case, ...]:
    """Static instances, so that the KV held depends only on the requests."""
    return (case_of(burst_7b(), "distserve_full"),)


def fig1(outcomes: Outcomes) -> Figure:
    """The steepest rise, and the least and most KV."""
    (static,) = cases()
    rows = (
        _row(outcomes, static, _RISE, _metric("steepest rise of arrivals", "times", rise)),
        _row(outcomes, static, _MOST, _metric("most KV held", "GB", lambda run: float(_gb_held(run).max()))),
        _row(
            outcomes, static, _LEAST, _metric("least KV held", "GB", lambda run: float(_gb_held(run).min()))
        ),
        _row(outcomes, static, _SWING, _metric("most over least KV", "times", swing)),
    )
    note = (
        "where the line of KV is flat, the memory of all instances is full: what is held, not what is wanted"
    )
    return Figure(
        "fig1",
        "Figure 1: demand over time",
        rows,
        panels=_panels(outcomes.of(static)),
        inputs=(*inputs(outcomes, (static,)), note),
    )


def _metric(label: str, unit: str, read: Callable[[RunOutcome], float]) -> Metric:
    """None of a run that has no timeline, or ends before the first burst."""

    def known(run: RunOutcome) -> float | None:
        return read(run) if "kv_tokens" in run.timelines and run.arrival_s.max() > _WARM_S else None

    return Metric(label, unit, "kv_tokens", known)


def rise(run: RunOutcome) -> float:
    """Arrivals of the busiest bin of 2 s within 4 s after a bin over that bin's, around the first burst.

    The bin before is the mean of those until the burst, for a bin has few requests.
    """
    counts = np.bincount((run.arrival_s // _BIN_S).astype(np.int64)).astype(np.float64)
    onset = int(5.0 // _BIN_S)
    return float(counts[onset + 1 : onset + 4].mean() / counts[:onset].mean())


def held_gb(run: RunOutcome) -> "tuple[Floats, Floats]":
    """(seconds, GB of KV in requests between their first and last token)."""
    at_s, tokens = run.timelines["kv_tokens"]
    return at_s, tokens * load_llm("llama2_7b").kv_bytes_per_token / 1e9


def swing(run: RunOutcome) -> float:
    """Most over least."""
    held = _gb_held(run)
    return float(held.max() / held.min())


def _gb_held(run: RunOutcome) -> "Floats":
    """Return the GB of KV held between the first burst and the last arrival."""
    at_s, gb = held_gb(run)
    held: Floats = gb[(at_s >= _WARM_S) & (at_s <= run.arrival_s.max())]
    return held


def _row(outcomes: Outcomes, case: Case, claim: Claim, metric: Metric) -> FigureRow:
    def why(seeds: list[float]) -> str:
        counts = ", ".join(f"{len(run.arrival_s):,}" for run in outcomes.of(case))
        return f"{number(mean_of(seeds).value)} {metric.unit} with {counts} requests by seed"

    read = values_of(metric, lacks="a run has no timeline of KV that long")
    return judged_row(outcomes, metric.label, claim, (case,), read, why=why, unit=metric.unit)


def _panels(runs: Sequence[RunOutcome]) -> tuple[Panel, ...]:
    if not runs or "kv_tokens" not in runs[0].timelines:
        return ()
    counts = np.bincount(runs[0].arrival_s.astype(np.int64)).astype(np.float64)
    at_s, gb = held_gb(runs[0])
    arrivals = PlotLine("arrivals", np.arange(len(counts)).tolist(), counts.tolist())
    return (
        Panel("arrivals", "time (s)", "requests per second", (arrivals,)),
        Panel("KV held", "time (s)", "GB", (PlotLine("all requests", at_s.tolist(), gb.tolist()),)),
    )
