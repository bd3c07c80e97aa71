"""What multicast is worth under each kind of start: time to capacity, attainment by system
(docs/explanation/STARTUP.md).

python -m benchmarks.start_up                  the table, five seeds each
python -m benchmarks.start_up seeds=1          fewer seeds
python -m benchmarks.start_up set=surge        another set-up: bursts, surge or large
python -m benchmarks.start_up plot=FILE.png    a picture too

Every system has vLLM's start-up, so that they differ in how parameters come and in nothing else. Time to
capacity: from the first load that the load monitor wishes to the moment at which all it wished by then serve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from benchmarks.command import command, count
from experiments.common.scale_times import times_to_capacity
from servetwin.config.compose.compose import load_config
from servetwin.report.picture import new_figure, require_picture, save
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.errors import UserError

SYSTEMS: Final = ("serverlessllm", "allcache", "blitz_network", "blitz_multicast")
KINDS: Final = ("cold", "warm", "hot", "pooled")
SEEDS: Final = 5
WORDS: Final = ("engine.start_up=vllm", "uncertainty=off", "out=unused")
SETS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "bursts": (
        "Llama-3-8B, 16 A100, five-fold bursts",  # README's example of elastic systems
        ("cluster=blitz_b", "trace=burstgpt_like", "trace.rate_scale=2", "system.instances.prefill_min=2"),
    ),
    "surge": (
        "Llama-3-8B, 16 A100, surges of a code trace",  # that of docs/reference/SYSTEMS.md
        ("cluster=blitz_b", "trace=azure_code_like", "trace.rate_scale=4", "trace.limit=3000"),
    ),
    "large": (
        "Qwen2.5-72B on 4 GPUs each, 32 A800, five-fold bursts",
        (
            *("cluster=blitz_a", "model=qwen2_5_72b", "slo=blitzscale_72b", "trace=burstgpt_like"),
            *("trace.rate_scale=0.5", "system.instances.prefill_min=2"),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Came:
    """One run: median seconds of a start, mean seconds to capacity, and what requests and GPUs got of it."""

    start_s: float
    capacity_s: float
    attainment: float
    ttft_ms: float
    gpu_seconds: float


def came(system: str, kind: str, seed: int, chosen: str) -> Came:
    """One run of a system under a kind of start."""
    words = [*SETS[chosen][1], f"system={system}", f"system.instances.start={kind}", f"seed={seed}", *WORDS]
    summary = execute(prepare(load_config(words, "simulate"))).summary
    starts = summary["starts"]
    return Came(
        start_s=starts["median_s"].get("total", 0.0),
        capacity_s=fmean(times_to_capacity(summary) or [0.0]),
        attainment=summary["slo"]["attainment"],
        ttft_ms=summary["ttft_ms"]["mean"],
        gpu_seconds=summary["gpu_seconds"],
    )


def table(seeds: int, chosen: str) -> dict[tuple[str, str], list[Came]]:
    """(System, kind) -> a run per seed, without refused pairs. Prints a row of each when it is done."""
    print("| start | system | a start, median | to capacity, mean | within objectives | TTFT, mean | GPU-s |")
    print("|---|---|---|---|---|---|---|")
    runs_of: dict[tuple[str, str], list[Came]] = {}
    for kind in KINDS:
        for system in SYSTEMS:
            try:
                runs = [came(system, kind, seed, chosen) for seed in range(seeds)]
            except UserError:  # hot, of a system that loads from other instances
                print(f"| {kind} | `{system}` | | | | | |", flush=True)
                continue
            runs_of[system, kind] = runs
            mean = {
                name: fmean(getattr(run, name) for run in runs)
                for name in ("attainment", "ttft_ms", "gpu_seconds")
            }
            print(
                f"| {kind} | `{system}` | {median(run.start_s for run in runs):.2f} s "
                f"| {fmean(run.capacity_s for run in runs):.2f} s | {100 * mean['attainment']:.1f} % "
                f"| {mean['ttft_ms'] / 1e3:.2f} s | {mean['gpu_seconds']:,.0f} |",
                flush=True,
            )
    return runs_of


def draw(runs_of: Mapping[tuple[str, str], Sequence[Came]], title: str, path: Path) -> None:
    """Two panels, bars by kind of start and system: time to capacity, and attainment."""
    drawn = new_figure(11, 4.2)
    places = drawn.subplots(1, 2)
    panels = (("time to capacity, s", "capacity_s", 1.0), ("within the objectives, %", "attainment", 100.0))
    width = 0.8 / len(SYSTEMS)
    for axes, (label, name, scale) in zip(places, panels, strict=True):
        for place, system in enumerate(SYSTEMS):
            kinds = [kind for kind in KINDS if (system, kind) in runs_of]
            x = [KINDS.index(kind) + (place - 1.5) * width for kind in kinds]
            values = [[scale * getattr(run, name) for run in runs_of[system, kind]] for kind in kinds]
            means = [fmean(seed_values) for seed_values in values]
            off = [[mean - min(seed_values) for mean, seed_values in zip(means, values, strict=True)]]
            off.append([max(seed_values) - mean for mean, seed_values in zip(means, values, strict=True)])
            axes.bar(x, means, width, yerr=off, capsize=2, label=system)
        axes.set_xticks(range(len(KINDS)), KINDS)
        axes.set(ylabel=label, xlabel="how instances start (vLLM's terms)", ylim=(0, None))
    places[0].legend(frameon=False, fontsize="small")
    drawn.suptitle(f"What multicast is worth under each start: {title}")
    save(drawn, path, dpi=110)


def main(words: list[str]) -> None:
    """Print the table, and draw it where a file is named."""
    seeds, plot, chosen = SEEDS, None, "bursts"
    for word in words:
        key, _, value = word.partition("=")
        if key == "seeds":
            seeds = count(value, "number of seeds", "python -m benchmarks.start_up seeds=2")
        elif key == "plot" and value:
            plot = Path(value)
            require_picture(plot)
        elif key == "set" and value in SETS:
            chosen = value
        else:
            raise UserError(
                f"{word} is unknown: write seeds=N, plot=FILE.png or set= one of {', '.join(SETS)}"
            )
    runs_of = table(seeds, chosen)
    if plot is not None:
        draw(runs_of, SETS[chosen][0], plot)
        print(f"picture in {plot}")


if __name__ == "__main__":
    command("benchmarks.start_up", __doc__, main)
