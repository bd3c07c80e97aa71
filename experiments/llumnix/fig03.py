"""Figure 3: preemptions of one instance at a moderate load, and what they cost the slowest requests."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from experiments.common.compare import judged_row
from experiments.common.figure import Figure, FigureRow, MeasuredPoint, Panel, PlotLine
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import mean_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, about, times
from experiments.llumnix.judge import PointJudge, first_seed, values_if_enough
from experiments.llumnix.set_ups import BY_TITLE, ENGINE, ROUND_ROBIN, system

PAPER_REQUESTS: Final = 2_000
_RATE_PER_S: Final = 0.42
_COLUMNS: Final = ("preemptions", "preemption_loss_ms", "tpot_ms", "output_tokens")
_PERCENTS: Final = (50, 80, 95, 99)


def cases(requests: int) -> tuple[Case, ...]:
    """2,000 requests of M-M on one A10, or fewer; the dispatcher has no choice."""
    workload = BY_TITLE["M-M"]
    words = ("cluster=llumnix_1x1", "model=llama_7b", "engine=vllm_0_1_7", *ENGINE)
    set_up = workload.at(_RATE_PER_S, min(requests, PAPER_REQUESTS), words=words)
    return (system(ROUND_ROBIN, set_up, workload, columns=_COLUMNS),)


def fig3(judge: PointJudge) -> Figure:
    """Four numbers of the paper's text, and the decode latency by percentile with the loss in it."""
    (case,) = cases(judge.requests)
    runs = judge.outcomes.of(case)
    rows = [_row(judge.outcomes, case, claim, metric) for claim, metric in _CLAIMS]
    numbers = _numbers(runs)
    panel = Panel(
        "decode latency per token by percentile, and the preemption loss in it (mean over seeds)",
        "percentile", "ms", _lines(numbers), ticks=tuple(f"P{percent}" for percent in _PERCENTS),
    )  # fmt: skip
    inputs = (
        f"M-M at {_RATE_PER_S:g}/s on one instance of LLaMA-7B",
        "the loss in a request's decode latency is its preemption loss by its tokens after the first",
    )
    return Figure(
        "fig3",
        "Figure 3: preemptions on one instance",
        tuple(rows),
        panels=(panel,),
        inputs=inputs,
        numbers=numbers,
    )


def _row(outcomes: Outcomes, case: Case, claim: Claim, metric: Metric) -> FigureRow:
    few = f"the paper's run has {PAPER_REQUESTS:,} requests" if outcomes.requests < PAPER_REQUESTS else ""
    return judged_row(outcomes, metric.label, claim, (case,), values_if_enough(metric, few), why=first_seed)


def _memory(run: RunOutcome) -> float:
    """Tokens of requests between their first and last token over the instance's 13,616, on average."""
    times_s, tokens = run.timelines["kv_tokens"]
    return float(tokens[times_s <= float(run.arrival_s[-1])].mean()) / 13_616


def _preempted(run: RunOutcome) -> float:
    return float((run.columns["preemptions"] > 0).mean())


def _spread(run: RunOutcome) -> float:
    decode = _decode(run)
    return float(np.percentile(decode, 99) / np.percentile(decode, 50))


def _decode(run: RunOutcome) -> np.ndarray:
    tpot_ms: np.ndarray = run.columns["tpot_ms"][~np.isnan(run.columns["tpot_ms"])]
    return tpot_ms


def _at(run: RunOutcome, percent: float) -> int:
    """The request at a percentile of decode latency."""
    tpot_ms = np.nan_to_num(run.columns["tpot_ms"], nan=-1.0)
    order = np.argsort(tpot_ms, kind="stable")[int((tpot_ms < 0).sum()) :]
    return int(order[min(len(order) - 1, int(len(order) * percent / 100))])


def _share(run: RunOutcome, percent: float) -> float:
    index = _at(run, percent)
    per_token_ms = run.columns["preemption_loss_ms"][index] / max(
        1.0, run.columns["output_tokens"][index] - 1
    )
    return min(1.0, float(per_token_ms / run.columns["tpot_ms"][index]))


def _loss_s(run: RunOutcome, percent: float) -> float:
    return float(run.columns["preemption_loss_ms"][_at(run, percent)]) / 1e3


def _numbers(runs: Sequence[RunOutcome]) -> tuple[MeasuredPoint, ...]:
    points = []
    for percent in _PERCENTS if runs else ():
        decode = tuple(float(np.percentile(_decode(run), percent)) for run in runs)
        loss = tuple(_share(run, percent) * float(run.columns["tpot_ms"][_at(run, percent)]) for run in runs)
        points.append(MeasuredPoint("", "decode_ms", "one instance", float(percent), decode))
        points.append(MeasuredPoint("", "preemption_loss_per_token_ms", "one instance", float(percent), loss))
    return tuple(points)


def _lines(numbers: Sequence[MeasuredPoint]) -> tuple[PlotLine, ...]:
    lines = []
    for metric in dict.fromkeys(point.metric for point in numbers):
        y = [mean_of(point.values).value for point in numbers if point.metric == metric]
        lines.append(PlotLine(metric, list(range(len(y))), y, ".-"))
    return tuple(lines)


def _of_p99(read: Callable[[RunOutcome, float], float]) -> Callable[[RunOutcome], float]:
    return lambda run: read(run, 99)


# The claims about this figure in the text of section 3.
_CLAIMS: Final = (
    (about(0.62, "62 %"), Metric("mean use of KV memory", "", "requests", _memory)),
    (about(0.08, "8 %"), Metric("requests that are preempted", "", "requests", _preempted)),
    (times(3.8), Metric("P99 over P50 of decode latency", "", "requests", _spread)),
    (about(0.7, "70 %"), Metric("loss in the P99 decode latency", "", "requests", _of_p99(_share))),
    (about(50.0, "50 s"), Metric("preemption loss of the P99 request", "s", "requests", _of_p99(_loss_s))),
)
