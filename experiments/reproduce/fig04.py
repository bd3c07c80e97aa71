"""Figure 4: how often ServerlessLLM finds a model in no memory of the host it starts on."""

from typing import Final

from experiments.reproduce.compare import order_row, value_row
from experiments.reproduce.figure import Figure
from experiments.reproduce.outcomes import MISS_RATE, Outcomes
from experiments.reproduce.set_ups import Case, many_models
from experiments.reproduce.verdict import within

# BlitzScale (OSDI 2025), Figure 4, on BurstGPT.
_PAPER: Final = within(0.20, 0.46, "20 to 46 %")
# The paper does not say how much work the models have: the rule of all other figures, and half of it.
_SHARES: Final = (0.5, 0.25)


def cases() -> tuple[Case, ...]:
    """2 models in a host's memory and 300 s, under both loads; with a larger memory; with a shorter life."""
    least = _SHARES[-1]
    published = tuple(many_models(share) for share in _SHARES)
    return (*published, many_models(least, cached=4), many_models(least, briefly=True))


def fig4(outcomes: Outcomes) -> Figure:
    """The miss rate, and that it falls with memory and rises when copies live shorter."""
    busy, published, larger, briefer = cases()
    rows = (
        *(
            value_row(outcomes, f"host-cache miss rate, {one.label}", _PAPER, MISS_RATE, one)
            for one in (busy, published)
        ),
        order_row(outcomes, "misses by load", MISS_RATE, (published, busy), "own_analysis"),
        order_row(outcomes, "misses by memory", MISS_RATE, (larger, published), "own_analysis"),
        order_row(outcomes, "misses by time to live", MISS_RATE, (published, briefer), "own_analysis"),
    )
    rates = dict.fromkeys(one.told for case in cases() for one in outcomes.of(case))
    inputs = (
        "16 models by Zipf 0.9 on 32 hosts of one GPU; only single-GPU hosts make several instances of one "
        "model start on as many hosts",
        *rates,
    )
    return Figure("fig4", "Figure 4: host-cache misses of ServerlessLLM", rows, inputs=inputs)
