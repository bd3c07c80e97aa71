"""What a point of a sweep costs beside its simulation.

python -m benchmarks.sweep_points    # the 200 points of docs/contributing/lab/SWEEP.md, about 10 s of CPU
"""

from time import process_time

from benchmarks.command import command, no_words
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import evaluated, execute, prepare
from servetwin.sweeps.axes import axes_of
from servetwin.sweeps.points import Point, points_of

WORDS = (
    "cluster=a100_x4,a100_x8,h100_x4,h100_x8",
    "system/dispatch=least_outstanding,round_robin",
    "seed=range(0,25)",
    "trace=azure_conv_like",
    "trace.requests=300",
    "trace.rate_per_s=20",
)


def points() -> list[Point]:
    """Those of the sweep of docs/contributing/lab/SWEEP.md."""
    plain, axes, _ = axes_of(WORDS)
    return points_of([*plain, "uncertainty=off"], axes)


def main(words: list[str]) -> None:
    """CPU milliseconds of a point, means over all of them."""
    no_words(words)
    every = points()
    load_config([*every[0].words, "out=none"], "simulate")  # what a process does once
    began_s = process_time()
    configs = [load_config([*point.words, "out=none"], "simulate") for point in every]
    composed_s = process_time()
    for config in configs:
        evaluated(config)
    ended_s = process_time()
    loop_s = sum(execute(prepare(config)).cpu_s for config in configs)
    rows = {
        "its configuration": composed_s - began_s,
        "its run": ended_s - composed_s,
        "  of it events and metrics": loop_s,
        "beside events and metrics": ended_s - began_s - loop_s,
    }
    print(f"{len(every)} points")
    for name, seconds in rows.items():
        print(f"{name:<28}{1e3 * seconds / len(every):6.1f} ms of CPU")


if __name__ == "__main__":
    command("benchmarks.sweep_points", __doc__, main)
