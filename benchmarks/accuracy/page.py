"""docs/explanation/ACCURACY.md and its lab note: how far simulations are from measured runs, written from the
evaluation."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.accuracy.errors import (
    LEAST_COVERED,
    MOST_PERCENT,
    REGIMES,
    STEPS,
    WAITS,
    Error,
    broken,
    broken_memory,
    covered_share,
    errors_of,
    regime_of,
    row_of,
    rows_of,
)
from benchmarks.accuracy.fit import Terms
from benchmarks.accuracy.measured import SOURCES, STAGES
from benchmarks.accuracy.runs import SimulatedRun
from benchmarks.kv_memory import Logged

NAMES: Final = {
    "ttft_ms.mean": "TTFT mean",
    "ttft_ms.p90": "TTFT P90",
    "ttft_ms.p95": "TTFT P95",
    "ttft_ms.p99": "TTFT P99",
    "tpot_ms.mean": "TPOT mean",
    "tpot_ms.p95": "TPOT P95",
    "itl_ms.p50": "ITL P50",
    "e2e_ms.mean": "E2E mean",
    "e2e_ms.p90": "E2E P90",
    "e2e_ms.p99": "E2E P99",
    "throughput.output_tokens_per_s": "output tokens/s",
    "energy.gpu_mean_w": "power per GPU",
}
UNITS: Final = {"throughput.output_tokens_per_s": "", "energy.gpu_mean_w": " W"}
WORST: Final = 10
# Why the worst errors are what they are, as far as it was found; by the start of a run's or metric's name.
CAUSES: Final = {
    "r10_0": "saturated; 128 sequences of 1,800 tokens take 26.8 ms a step, here 22.7: not unequal contexts, "
    "and steps with prompts 30 % longer leave -13 %; at the low end of the steps nobody waits, so its range "
    "is wide, and one of 4 that holds what was measured would begin above what is simulated",
    "qwen3_8b_128": "clients of one length come in waves; milliseconds decide how many prompts share a step",
    "ttft_ms.p99": "the first requests of a stage find a server that still warms up",
    "energy": "the power of decode steps is that of another H100 (ML.ENERGY)",
}


def head_line(errors: Sequence[Error]) -> str:
    """The page in one sentence, also for README."""
    rows = {row.metric: row for row in rows_of(errors)}
    ttft, tpot, e2e = (f"{rows[metric].mean:.1f} %" for metric in MOST_PERCENT)
    return (
        f"On {rows['tpot_ms.mean'].count} measured stages of vLLM on H100 below saturation, mean TTFT is "
        f"{ttft} off, TPOT {tpot} and end to end {e2e}, with every fitted constant taken from other models; "
        f"{covered_share(errors):.0%} of means and P90s lie in the printed range, but only "
        f"{rows['ttft_ms.p99'].covered:.0%} of the P99s of TTFT"
    )


def page(
    *, left_out: Sequence[SimulatedRun], as_shipped: Sequence[SimulatedRun], logged: Sequence[Logged]
) -> str:
    """The page. ``left_out``: unsaturated stages with constants fitted without their model."""
    errors = errors_of(left_out)
    others = [run for run in as_shipped if run.run.source != STAGES]
    parts = [
        "# Accuracy",
        f"{head_line(errors)}.",
        _how([*broken(errors), *broken_memory(logged)]),
        "## What was compared",
        _coverage(as_shipped),
        "TTFT is the client's. Step times are AIConfigurator's tables for the H100 (vLLM 0.19.0), composed\n"
        "for each model: no table was measured with a run's model or version. A run without\n"
        "`engine.profile` uses lines fitted to such tables; their own error is in\n"
        "[STEP_TIMES](STEP_TIMES.md#how-far-off-they-are). No other GPU, engine or precision was compared\n"
        "here; [SILICON](SILICON.md) has FP8 and FP4 ([LIMITS](../reference/LIMITS.md)).",
        "## Errors",
        "Mean of the sizes of the errors, bias (above 0: the simulation is too slow), P90 of the sizes,\n"
        "share of measured values in the range ([HOW_FAR_OFF](HOW_FAR_OFF.md)), and the median of the\n"
        "range's high over low.",
        *_titled("Stages below saturation, constants fitted without the run's model", left_out),
        *_titled("Qwen3-8B, as shipped", others),
        "## By regime",
        "The stages with constants fitted without their model; the saturated one and Qwen3-8B as shipped.\n"
        "TPOT is its mean or the median ITL, TTFT its mean or P95; errors are the mean and the P90 of their\n"
        "sizes. The width of the range follows the P90s of TPOT (`steps` of\n"
        "`hwmodels/catalogue/engine_terms.yaml`), but the tables' own error is the least.",
        _regimes([*left_out, *(one for one in as_shipped if one.run.saturated or one.run.source != STAGES)]),
        "## Where it is worst",
        f"The worst {WORST} values have these causes; each with its worst value. The\n"
        "[lab note](../contributing/lab/ACCURACY.md) lists all of them, the stages as shipped, and the fit.",
        _causes(errors_of(as_shipped)),
        "## KV memory",
        _kv(logged),
    ]
    return "\n\n".join(parts) + "\n"


def lab_note(as_shipped: Sequence[SimulatedRun], terms: Mapping[str, Terms]) -> str:
    """What stands behind the page: the stages as shipped, the worst values and the fitted constants."""
    stages = [run for run in as_shipped if run.run.source == STAGES]
    parts = [
        "# Lab note: accuracy",
        "Written by `python -m benchmarks.accuracy`, with [ACCURACY](../../explanation/ACCURACY.md), which\n"
        "says what was compared and what the columns are.",
        "## Stages as shipped",
        *_titled("Stages below saturation", [run for run in stages if not run.run.saturated]),
        *_titled("Saturated stages", [run for run in stages if run.run.saturated]),
        "## Worst ten",
        _worst(errors_of(as_shipped)),
        "## What was fitted",
        _fitted(terms),
    ]
    return "\n\n".join(parts) + "\n"


def _how(found: Sequence[str]) -> str:
    limits = ", ".join(f"{NAMES[metric]} {most:g} %" for metric, most in MOST_PERCENT.items())
    verdict = "green" if not found else f"red: {'; '.join(found)}"
    return (
        "`python -m benchmarks.accuracy` writes this page (some minutes; it needs `SERVETWIN_REAL_RUNS` and\n"
        "`SERVETWIN_PROFILES`, and goes on where it was interrupted). "
        f"The page is **{verdict}**.\n"
        f"It turns red if the mean error in the first table of errors exceeds a limit ({limits}),\n"
        f"or if fewer than {LEAST_COVERED:.0%} of means and P90s lie in their ranges, or if KV memory is\n"
        "more than 3 % off on average.\n"
        "`tests/benchmarks/test_accuracy.py` makes steps 10 % slower, takes the front end away, and takes a\n"
        "fifth of the KV memory away: each turns it red."
    )


def _coverage(runs: Sequence[SimulatedRun]) -> str:
    lines = ["| source | runs | simulated | refused | saturated |", "|---|---|---|---|---|"]
    for source, title in SOURCES.items():
        mine = [run for run in runs if run.run.source == source]
        refused = sum(bool(run.refused) for run in mine)
        saturated = sum(run.run.saturated for run in mine)
        lines.append(f"| {title} | {len(mine)} | {len(mine) - refused} | {refused} | {saturated} |")
    lines += [f"\n`{run.run.name}` was refused: {run.refused}" for run in runs if run.refused]
    return "\n".join(lines)


def _titled(title: str, runs: Sequence[SimulatedRun]) -> tuple[str, str]:
    return f"**{title}** ({len(runs)} runs)", _table(runs)


def _table(runs: Sequence[SimulatedRun]) -> str:
    lines = ["| | values | error | bias | P90 | in the range | width |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {NAMES[row.metric]} | {row.count} | {row.mean:.1f} % | {row.bias:+.1f} % | {row.p90:.1f} % | "
        f"{row.covered:.0%} | {row.width:.2f} |"
        for row in rows_of(errors_of(runs))
    ]
    return "\n".join(lines)


def _regimes(runs: Sequence[SimulatedRun]) -> str:
    lines = [
        "| regime | runs | TPOT error | TPOT in the range | width | TTFT error | TTFT in the range | width |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for regime in REGIMES:
        mine = [run for run in runs if not run.refused and regime_of(run) == regime]
        if mine:
            errors = errors_of(mine)
            cells = [_regime_cells([one for one in errors if one.metric in kind]) for kind in (STEPS, WAITS)]
            lines.append(f"| {regime} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _regime_cells(errors: Sequence[Error]) -> str:
    row = row_of("", errors)
    return f"{row.mean:.1f}, {row.p90:.1f} % | {row.covered:.0%} | {row.width:.2f}"


def _worst_of(errors: Sequence[Error]) -> list[Error]:
    return sorted(errors, key=lambda error: -abs(error.percent))[:WORST]


def _worst(errors: Sequence[Error]) -> str:
    lines = ["| run | | measured | simulated | error | cause |", "|---|---|---|---|---|---|"]
    lines += [f"| {_value_cells(one)} | {_cause(one)} |" for one in _worst_of(errors)]
    return "\n".join(lines)


def _causes(errors: Sequence[Error]) -> str:
    """Each cause of the worst values once, with its worst value and the number of its values."""
    found: dict[str, list[Error]] = {}
    for one in _worst_of(errors):
        found.setdefault(_cause(one), []).append(one)
    lines = [
        "| values | worst of them | | measured | simulated | error | cause |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {len(ones)} | {_value_cells(ones[0])} | {cause} |" for cause, ones in found.items()]
    return "\n".join(lines)


def _value_cells(one: Error) -> str:
    cells = one.run.run.title, NAMES[one.metric], _shown(one, one.measured), _shown(one, one.simulated)
    return f"{' | '.join(cells)} | {one.percent:+.0f} %"


def _shown(error: Error, value: float) -> str:
    if error.metric in UNITS:
        return f"{value:,.0f}{UNITS[error.metric]}"
    return f"{value / 1e3:,.1f} s" if value >= 1e4 else f"{value:,.3g} ms"


def _cause(error: Error) -> str:
    names = error.metric, error.run.run.name
    found = [cause for start, cause in CAUSES.items() if any(name.startswith(start) for name in names)]
    return found[0] if found else "unknown"


def _fitted(terms: Mapping[str, Terms]) -> str:
    lines = [
        "The constants of `hwmodels/catalogue/engine_terms.yaml`, fitted to these runs: with all models,\n"
        "and without each of them, as the first table of the page uses them. Of Qwen3-8B's runs, those with\n"
        "up to 16 clients count, for the step alone; what vLLM 0.30 adds per sequence was fitted to all 16.",
        "",
        "| without | per step | way in and out | per request that decodes beside it |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name or 'none'} | {1e3 * one.step_s:.2f} ms | {1e3 * one.base_s:.1f} ms | "
        f"{1e6 * one.running_s:.0f} us |"
        for name, one in terms.items()
    ]
    return "\n".join(lines)


def _kv(logged: Sequence[Logged]) -> str:
    known = [value for value in logged if value.flags == "recorded"]
    worst = max(known, key=lambda value: abs(value.error))
    small = sum(abs(value.error) <= 0.03 for value in known)
    return (
        f"Of {len(known)} values that vLLM logged and whose flags are recorded, {small} are within 3 % of\n"
        f"its own arithmetic here; the largest error is {worst.error:+.1%} ({worst.case}).\n"
        "`python -m benchmarks.kv_memory` prints the table; [HOW_FAR_OFF](HOW_FAR_OFF.md#kv-memory) has the\n"
        "arithmetic."
    )
