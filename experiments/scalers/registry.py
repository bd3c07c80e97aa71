"""Which figures of autoscalers there are."""

from typing import Final

from experiments.common.recipe import Paper, Recipe
from experiments.scalers.beside_others import pods_and_live, pods_cases, tokenscale, tokenscale_cases
from experiments.scalers.token_velocity import cases, token_velocity

SCALERS: Final[dict[str, Recipe]] = {
    "token_velocity": Recipe("replicas at five rates beside those observed (llm-d)", cases, token_velocity),
    "tokenscale": Recipe("TokenScale beside DistServe, BlitzScale, AIBrix", tokenscale_cases, tokenscale),
    "pods_and_live": Recipe("HPA and KEDA beside live scaling, three traces", pods_cases, pods_and_live),
}


def paper() -> Paper:
    """The experiments on autoscalers, whose runs have their traces' lengths, and no further sweeps."""
    return Paper(name="scalers", recipes=SCALERS, sweeps=lambda _: (), run_cpu_s=1.8, requests=False)
