"""docs/ACCURACY.md: how far simulations are from measured runs, written from the evaluation."""

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.accuracy.errors import LEAST_COVERED, MOST_PERCENT, Error, broken, covered_share, rows_of
from benchmarks.accuracy.fit import Terms
from benchmarks.accuracy.measured import SOURCES, STAGES
from benchmarks.accuracy.runs import SimulatedRun

NAMES: Final = {
    "ttft_ms.mean": "TTFT mean", "ttft_ms.p90": "TTFT P90", "ttft_ms.p95": "TTFT P95", "ttft_ms.p99": "TTFT P99",
    "tpot_ms.mean": "TPOT mean", "tpot_ms.p95": "TPOT P95", "itl_ms.p50": "ITL P50",
    "e2e_ms.mean": "E2E mean", "e2e_ms.p90": "E2E P90", "e2e_ms.p99": "E2E P99",
    "throughput.output_tokens_per_s": "output tokens/s", "energy.gpu_mean_w": "power per GPU",
}  # fmt: skip
WORST: Final = 10
# Why the worst errors are what they are, as far as it was found; by run and metric.
CAUSES: Final = {
    "r10_0": "saturated: 3.1 of 4 requests/s were served, here 3.8; its steps took 26.8 ms, here 22.9: a batch of "
    "128 sequences of 1,800 tokens, slower than tables and overhead say; why is unknown",
    "qwen3_8b_128": "128 tokens in and out: clients of one length come in waves, and how many prompts share a step "
    "depends on milliseconds between them",
    "ttft_ms.p99": "the first requests of a stage find empty caches and a server that still warms up",
    "energy.gpu_mean_w": "the power of a GPU that reads weights is taken too low",
}


def head_line(errors: Sequence[Error]) -> str:
    """The page in one sentence, also for README."""
    rows = {row.metric: row for row in rows_of(errors)}
    mean = {metric: f"{rows[metric].mean:.1f} %" for metric in MOST_PERCENT}
    count = rows["tpot_ms.mean"].count
    return (
        f"On {count} measured stages of vLLM on H100 below saturation, mean TTFT is {mean['ttft_ms.mean']} off, "
        f"TPOT {mean['tpot_ms.mean']} and end to end {mean['e2e_ms.mean']}, with every fitted constant taken from "
        f"other models; {covered_share(errors):.0%} of means and P90s lie in the printed range"
    )


def page(
    *, left_out: Sequence[SimulatedRun], as_shipped: Sequence[SimulatedRun], unfitted: Sequence[Error],
    terms: dict[str, Terms], kv: Sequence[str],
) -> str:  # fmt: skip
    """The page. ``left_out``: unsaturated stages without their own model's constants; ``unfitted``: their errors."""
    found = broken(unfitted)
    verdict = "green" if not found else "red: " + "; ".join(found)
    parts = [
        "# Accuracy",
        f"{head_line(unfitted)}.",
        "Written by `python -m benchmarks.accuracy`, which needs `SERVETWIN_REAL_RUNS` and `SERVETWIN_PROFILES` "
        f"(some minutes; it goes on where it was interrupted). The page is **{verdict}**: it turns red where mean "
        f"TTFT is more than {MOST_PERCENT['ttft_ms.mean']:g} % off, TPOT {MOST_PERCENT['tpot_ms.mean']:g} %, end to "
        f"end {MOST_PERCENT['e2e_ms.mean']:g} %, or fewer than {LEAST_COVERED:.0%} of means and P90s lie in their "
        "ranges. `tests/benchmarks/test_accuracy.py` makes steps 10 % slower, takes the front end away and takes "
        "20 % of the KV memory away: each turns it red.",
        "## What was compared",
        _coverage(as_shipped),
        "TTFT is the client's. Step times are AIConfigurator's tables for the H100 (vLLM 0.19.0), composed for each "
        "model; no table was measured with the model or the version of the run.",
        "## Errors",
        "Mean of the sizes of the errors, bias (above 0: the simulation is too slow), P90 of the sizes, share of "
        "measured values inside the range, and the median of high over low of the range.",
        *_tables(left_out, as_shipped),
        "## Worst ten",
        _worst(errors_of_all(as_shipped)),
        "## What was fitted",
        _fitted(terms),
        "## KV memory",
        *kv,
    ]
    return "\n\n".join(parts) + "\n"


def errors_of_all(runs: Iterable[SimulatedRun]) -> list[Error]:
    """All errors of all runs."""
    from benchmarks.accuracy.errors import errors_of

    return errors_of(runs)


def _coverage(runs: Sequence[SimulatedRun]) -> str:
    lines = ["| source | runs | simulated | refused | saturated |", "|---|---|---|---|---|"]
    for source, title in SOURCES.items():
        mine = [run for run in runs if run.run.source == source]
        refused = sum(bool(run.refused) for run in mine)
        saturated = sum(run.run.saturated for run in mine)
        lines.append(f"| {title} | {len(mine)} | {len(mine) - refused} | {refused} | {saturated} |")
    lines += [f"\n`{run.run.name}` was refused: {run.refused}" for run in runs if run.refused]
    return "\n".join(lines)


def _tables(left_out: Sequence[SimulatedRun], as_shipped: Sequence[SimulatedRun]) -> list[str]:
    stages = [run for run in as_shipped if run.run.source == STAGES]
    kinds = (
        ("Stages below saturation, constants fitted without the run's model", left_out),
        ("The same stages as shipped", [run for run in stages if not run.run.saturated]),
        ("Saturated stages, as shipped", [run for run in stages if run.run.saturated]),
        ("Qwen3-8B, as shipped", [run for run in as_shipped if run.run.source != STAGES]),
    )
    return [text for title, runs in kinds for text in (f"**{title}** ({len(runs)} runs)", _table(runs))]


def _table(runs: Sequence[SimulatedRun]) -> str:
    lines = ["| | values | error | bias | P90 | in the range | width |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {NAMES[row.metric]} | {row.count} | {row.mean:.1f} % | {row.bias:+.1f} % | {row.p90:.1f} % | "
        f"{row.covered:.0%} | {row.width:.2f} |"
        for row in rows_of(errors_of_all(runs))
    ]
    return "\n".join(lines)


def _worst(errors: Sequence[Error]) -> str:
    lines = ["| run | | measured | simulated | error | cause |", "|---|---|---|---|---|---|"]
    for error in sorted(errors, key=lambda one: -abs(one.percent))[:WORST]:
        lines.append(
            f"| {error.run.run.title} | {NAMES[error.metric]} | {error.measured:,.4g} | {error.simulated:,.4g} | "
            f"{error.percent:+.0f} % | {_cause(error)} |"
        )
    return "\n".join(lines)


def _cause(error: Error) -> str:
    keys = (error.metric, error.run.run.name)
    found = [text for key, text in CAUSES.items() if any(name.startswith(key) for name in keys)]
    return found[0] if found else "unknown"


def _fitted(terms: dict[str, Terms]) -> str:
    lines = [
        "The constants of `hwmodels/catalogue/engine_terms.yaml`, fitted to these runs with all models and without "
        "each (`step_s` per step; way in and out of a request; per request that decodes beside it):",
        "",
        "| without | step | way in and out | per decoding request |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name or '–'} | {1e3 * one.step_s:.2f} ms | {1e3 * one.base_s:.1f} ms | {1e6 * one.running_s:.0f} us |"
        for name, one in terms.items()
    ]
    return "\n".join(lines)
