"""Figure 5: memory is free in all, and the heads of queues do not fit where they wait."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from experiments.common.compare import judged_row
from experiments.common.figure import Figure, FigureRow, MeasuredPoint, Panel, PlotLine
from experiments.common.outcomes import Metric, RunOutcome
from experiments.common.set_up import Case
from experiments.common.timelines import KV_SHARES
from experiments.common.verdict import at_least
from experiments.llumnix.judge import PointJudge, values_if_enough
from experiments.llumnix.set_ups import BY_TITLE, ENGINE, INFAAS, PAPER_REQUESTS, system

INSTANCES: Final = 4
_RATE_PER_S: Final = 1.9
_HEADS: Final = 3
_INSTANCE_BLOCKS: Final = 851
_BLOCK_TOKENS: Final = 16
_COLUMNS: Final = ("arrival_ns", "scheduled_ns", "replica", "prompt_tokens")


def cases(requests: int) -> tuple[Case, ...]:
    """M-M on four instances; each request goes to the freest one, and none migrates."""
    workload = BY_TITLE["M-M"]
    words = ("cluster=llumnix_4x1", "model=llama_7b", "engine=vllm_0_1_7", *ENGINE, "series.period_s=1")
    set_up = workload.at(_RATE_PER_S, requests, words=words)
    return (system(INFAAS, set_up, workload, columns=_COLUMNS),)


def heads_tokens(run: RunOutcome, at_s: float) -> list[float]:
    """Prompts at the heads of the instances' queues then, the shortest first.

    Of requests that have not run yet: a preempted one that waits is not counted.
    """
    heads = []
    for instance in range(INSTANCES):
        waits = (
            (run.columns["replica"] == instance)
            & (run.columns["arrival_ns"] <= at_s * 1e9)
            & (run.columns["scheduled_ns"] > at_s * 1e9)
        )
        if waits.any():
            first = np.argmin(np.where(waits, run.columns["arrival_ns"], np.inf))
            heads.append(float(run.columns["prompt_tokens"][first]))
    return sorted(heads)


def fitting(free_blocks: float, heads: Sequence[float]) -> int:
    """Return how many of the heads fit in the free blocks, as if these were on one instance."""
    needed = np.cumsum([-(-tokens // _BLOCK_TOKENS) for tokens in heads])
    return int((needed <= free_blocks).sum())


def instants(run: RunOutcome) -> list[tuple[float, float, list[float]]]:
    """Return (s, free blocks of all instances, heads) of every second at which requests wait for memory."""
    seconds = []
    times_s, shares = run.timelines[KV_SHARES]
    for at_s, used in zip(times_s, shares, strict=True):
        if heads := heads_tokens(run, float(at_s)):
            seconds.append((float(at_s), (INSTANCES - float(used)) * _INSTANCE_BLOCKS, heads))
    return seconds


def _share(run: RunOutcome) -> float | None:
    """Return the share of seconds with waiting requests in which all heads, or three, would fit."""
    held = [fitting(free, heads) >= min(_HEADS, len(heads)) for _, free, heads in instants(run)]
    return sum(held) / len(held) if held else None


_LABEL: Final = "seconds in which free memory would hold three heads of queues, or all"
_FITS: Final = Metric(_LABEL, "", "series", _share)


def fig5(judge: PointJudge) -> Figure:
    """One sentence of section 3, and the first seed over time."""
    (case,) = cases(judge.requests)
    runs = judge.outcomes.of(case)
    inputs = (
        f"M-M at {_RATE_PER_S:g}/s on {INSTANCES} instances of LLaMA-7B, each request to the freest",
        "every second in which a request waits that has not run yet; preempted ones are not counted",
    )
    numbers = tuple(
        MeasuredPoint("", name, "infaas_pp", at_s, (value,))
        for run in runs[:1]
        for at_s, free, heads in instants(run)
        for name, value in (
            ("free_blocks", free), ("blocks_of_heads", sum(-(-head // _BLOCK_TOKENS) for head in heads)),
        )
    )  # fmt: skip
    return Figure(
        "fig5", "Figure 5: fragmentation", (_row(judge, case),), panels=_panels(numbers), inputs=inputs,
        numbers=numbers,
    )  # fmt: skip


def _row(judge: PointJudge, case: Case) -> FigureRow:
    claim = at_least(0.5, "most of the time (read as half of it)", "paper_direction")
    few = f"{judge.requests:,} requests, not {PAPER_REQUESTS:,}" if judge.requests < PAPER_REQUESTS else ""
    read = values_if_enough(_FITS, few, "in a run nobody waited")
    return judged_row(judge.outcomes, _FITS.label, claim, (case,), read)


def _panels(numbers: Sequence[MeasuredPoint]) -> tuple[Panel, ...]:
    lines = []
    for name in dict.fromkeys(point.metric for point in numbers):
        here = [point for point in numbers if point.metric == name]
        lines.append(PlotLine(name, [point.x for point in here], [point.values[0] for point in here], "."))
    return (Panel("free in all, and what heads of queues want (seed 0)", "s", "blocks", tuple(lines)),)
