"""Which figures of our own study of scale there are."""

from typing import Final

from experiments.common.recipe import Paper, Recipe
from experiments.scale.cells import cases
from experiments.scale.figures import busiest, links, served

SCALE: Final[dict[str, Recipe]] = {
    "served": Recipe("objectives, GPU-hours, time to capacity by GPUs and models", cases, served),
    "links": Recipe("mean use of SSDs, PCIe, NVLink and NICs", cases, links),
    "busiest": Recipe("use of the busiest link of each kind", cases, busiest),
}


def paper() -> Paper:
    """The study of scale, which has runs of its own lengths and no sweeps."""
    return Paper(name="scale", recipes=SCALE, sweeps=lambda _: (), run_cpu_s=4.5, requests=False)
