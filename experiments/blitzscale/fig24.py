"""Figure 24: prefill and decode on the same instances, Llama2-7B under BurstGPT, beside vLLM."""

from dataclasses import replace
from typing import Final

from experiments.blitzscale.levels import inputs, levels
from experiments.blitzscale.more_set_ups import burst_7b, colocated
from experiments.blitzscale.set_ups import BLITZ, MULTICAST
from experiments.common.compare import ratio_row
from experiments.common.figure import Figure
from experiments.common.outcomes import GPU_TIME, MEAN_TBT, MEAN_TTFT, P99_TTFT, Outcomes
from experiments.common.set_up import Case
from experiments.common.verdict import about, at_most, below, shorter, times

# BlitzScale (OSDI 2025), section 6.4: "a 0.24x shorter P99 TTFT" than average provisioning, in two readings.
_OF_IT: Final = times(0.24, "0.24x shorter, read as 0.24 of it")
_SHORTER: Final = replace(shorter(24), text="0.24x shorter, read as 24 % shorter")
_TAIL: Final = below(1.0, "even shorter than over-provisioned", "paper_direction")
_COMPARABLE: Final = about(1.0, "comparable with over-provisioned", "paper_direction")


def cases() -> tuple[Case, ...]:
    """vLLM on all GPUs and on the average need; BlitzScale live, and stopped while it loads."""
    set_up = burst_7b()
    return tuple(colocated(set_up, name) for name in (BLITZ, MULTICAST, "vllm_full", "vllm_half"))


def fig24(outcomes: Outcomes) -> Figure:
    """Both readings, and what is said of the over-provisioned system."""
    ours, stopped, full, half = cases()
    wanted = (
        (_OF_IT, P99_TTFT, ours, half),
        (_SHORTER, P99_TTFT, ours, half),
        (_TAIL, P99_TTFT, ours, full),
        (_COMPARABLE, MEAN_TTFT, ours, full),
        (_COMPARABLE, MEAN_TBT, ours, full),
        (below(1.0, "less", "own_analysis"), GPU_TIME, ours, full),
        (at_most(1.0, "not longer with live scaling", "own_analysis"), MEAN_TTFT, ours, stopped),
    )
    rows = tuple(
        ratio_row(
            outcomes,
            f"{metric.label} over {base.label}: {claim.text}",
            claim,
            metric,
            ours=system,
            other=base,
        )
        for claim, metric, system, base in wanted
    )
    sentences = (
        *inputs(outcomes, cases()),
        "one engine for all: vLLM's own scheduler is not what is compared",
    )
    return Figure(
        "fig24",
        "Figure 24: colocated, Llama2-7B",
        rows,
        panels=(),
        inputs=sentences,
        levels=levels(outcomes, cases()),
    )
