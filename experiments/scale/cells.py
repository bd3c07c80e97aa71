"""The cells of the study: so many GPUs and models, on equal load per GPU, and the systems in each."""

from typing import Final

from experiments.common.set_up import Case, SetUp, Words

CLUSTERS: Final = {64: "blitz_a_8x8", 256: "blitz_a_32x8", 1024: "blitz_a_128x8", 8192: "blitz_a_1024x8"}
"""GPUs -> the cluster: hosts of eight A800 with a NIC and PCIe link each, and an SSD for every GPU."""
MODELS: Final = (10, 100, 1000)
PER_GPU_S: Final = 0.1726
"""Requests per second and GPU: a static system's GPUs are busy for about a quarter of the time."""
DURATION_S: Final = 30
"""Arrivals of a run; the number of requests follows, so that runs of large clusters stay short."""
ONE_SEED_FROM: Final = 1024
"""From so many GPUs on a cell runs under the first seed only: it has thousands of requests."""

_NONE: Final[Words] = ("system.instances.prefill_min=0", "system.instances.decode_min=0")
SYSTEMS: Final[dict[str, Words]] = {
    "blitzscale": ("system=blitzscale", *_NONE),
    "serverlessllm": ("system=serverlessllm", *_NONE),
    "llumnix": ("system=llumnix_autoscaled", "system.instances.both_max=null"),
    "static": ("system=vllm",),
}
"""The last two give every model instances of its own at the start, so they need as many GPUs as models."""


def set_up(gpus: int, models: int) -> SetUp:
    """So many copies of Llama-3-8B on so many GPUs, on the same engine in every system."""
    words = (
        f"cluster={CLUSTERS[gpus]}", "model=llama3_8b", "engine=blitz_native", "models=zipf",
        f"models.count={models}", f"models.rate_per_s={PER_GPU_S * gpus:.6g}",
        f"models.duration_s={DURATION_S}", "uncertainty=off",
    )  # fmt: skip
    return SetUp(f"{gpus} GPUs, {models} models", words, ("trace=azure_conv_like",), rate="written")


def case_of(gpus: int, models: int, system: str) -> Case:
    """One system in a cell; it is missing, with the reason, where its configuration is refused."""
    once = gpus >= ONE_SEED_FROM
    return Case(system, set_up(gpus, models), SYSTEMS[system], once=once, optional=models > gpus)


def cases(_: int = 0) -> list[Case]:
    """Every system in every cell, the costliest first, so that no process waits for a last long run."""
    gpus_first = sorted(CLUSTERS, reverse=True)
    return [
        case_of(gpus, models, system)
        for gpus in gpus_first
        for models in reversed(MODELS)
        for system in SYSTEMS
    ]
