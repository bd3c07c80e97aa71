"""What a request costs when more models are hosted than there are GPUs (see benchmarks/README.md).

python -m benchmarks.many_models [COUNT ...]    10, 30, 100, 300 and 1000 models if left out
"""

from benchmarks.command import command, count
from benchmarks.raw import measured
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, Simulated, execute, prepare

COUNTS = (10, 30, 100, 300, 1000)
REPEATS = 3
# 32 GPUs; a model without requests has no instance, and one whose copies ended is loaded from an SSD.
WORDS = (
    "system=serverlessllm",
    "models=zipf",
    "cluster=blitz_a",
    "trace=azure_conv_like",
    "trace.requests=500",
    "system.instances.prefill_min=0",
    "system.instances.decode_min=0",
    "out=unused",
)


def main(words: list[str]) -> None:
    """Print one line per number of models."""
    example = "python -m benchmarks.many_models 10 100"
    for models in [count(word, "number of models", example) for word in words] or COUNTS:
        prepared = prepare(load_config([*WORDS, f"models.count={models}"], "simulate"))
        done: list[Simulated] = []
        execute(prepared)  # imports what summaries need
        runs = measured(lambda done=done, prepared=prepared: _once(prepared, done), REPEATS)
        loads = done[0].summary["loads"]["count"] / len(prepared.workload)
        looks = done[0].summary["duration_s"] * 10 / len(prepared.workload)
        print(
            f"{models:5d} models {runs.text('request')}   {loads:.2f} loads, at most {looks:.1f} looks",
            flush=True,
        )


def _once(prepared: Prepared, done: list[Simulated]) -> float:
    """CPU seconds per request; the run is put into ``done``."""
    done[:] = [execute(prepared)]
    return done[0].cpu_s / len(prepared.workload)


if __name__ == "__main__":
    command("benchmarks.many_models", __doc__, main)
