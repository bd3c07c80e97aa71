"""Plain numbers of every system beside the judged rows, and what a set-up was run with."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from experiments.common.outcomes import (
    GPU_TIME,
    INSTANCES,
    LOAD_TIME,
    LOADS,
    LONGEST_LOAD,
    MEAN_TBT,
    MEAN_TTFT,
    MISS_RATE,
    P99_TBT,
    P99_TTFT,
    Metric,
    Outcomes,
    RunOutcome,
)
from experiments.common.paired import mean_of
from experiments.common.rates import kv_arithmetic
from experiments.common.set_up import Case, SetUp
from servetwin.report.number_text import number

Levels = tuple[Mapping[str, str], ...]

SHOWN: Final[Mapping[str, tuple[Metric, ...]]] = {
    "TTFT mean / P99 (ms)": (MEAN_TTFT, P99_TTFT),
    "TBT mean / P99 (ms)": (MEAN_TBT, P99_TBT),
    "GPU s": (GPU_TIME,),
    "instances": (INSTANCES,),
    "loads / mean / longest (s)": (LOADS, LOAD_TIME, LONGEST_LOAD),
    "misses": (MISS_RATE,),
}


def levels(
    outcomes: Outcomes, cases: Iterable[Case], shown: Mapping[str, tuple[Metric, ...]] = SHOWN
) -> Levels:
    """One line per case that ran: means over seeds."""
    lines: list[Mapping[str, str]] = []
    for case in cases:
        if runs := outcomes.of(case):
            line = {"set-up": case.set_up.name, "system": case.label}
            lines.append(line | {title: _level(metrics, runs) for title, metrics in shown.items()})
    return tuple(lines)


def inputs(outcomes: Outcomes, cases: Iterable[Case]) -> tuple[str, ...]:
    """The rate rule's terms per set-up and seed (once where all seeds agree), and KV memory."""
    sentences: dict[str, None] = {}
    seen: list[SetUp] = []
    for case in cases:
        if case.set_up not in seen and (runs := outcomes.of(case)):
            seen.append(case.set_up)
            sentences |= dict.fromkeys(run.inputs for run in runs)
            sentences[kv_arithmetic(case.set_up)] = None
    return tuple(sentences)


def percent(share: float) -> str:
    """``18.70%``."""
    return f"{share:.2%}"


def _level(metrics: Sequence[Metric], runs: Sequence[RunOutcome]) -> str:
    values = [metric.of(runs) for metric in metrics]
    return " / ".join(number(mean_of(seeds).value if seeds else None) for seeds in values)
