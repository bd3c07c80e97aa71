"""What a request costs when more models are hosted than there are GPUs (see benchmarks/README.md).

python -m benchmarks.many_models [COUNT ...] [KEY=VALUE ...]    10, 30, 100, 300 and 1000 models if left out
python -m benchmarks.many_models clusters    1000 models on 32, 1,024 and 8,192 GPUs

KEY=VALUE are words of servetwin simulate: cluster=blitz_a_128x8 models.rate_per_s=177 models.requests=2000
"""

import subprocess
import sys
from resource import RUSAGE_SELF, getrusage

from benchmarks.command import command, count
from benchmarks.raw import measured
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, Simulated, execute, prepare
from serving.vocabulary.errors import UserError

COUNTS = (10, 30, 100, 300, 1000)
REPEATS = 3
# 32 GPUs; a model without requests has no instance, and one whose copies ended is loaded from an SSD.
WORDS = {
    "system": "serverlessllm",
    "models": "zipf",
    "cluster": "blitz_a",
    "models.requests": "500",
    "system.instances.prefill_min": "0",
    "system.instances.decode_min": "0",
    "out": "unused",
}
# The same rate for each GPU.
CLUSTERS = (
    "cluster=blitz_a models.requests=500",
    "cluster=blitz_a_128x8 models.rate_per_s=177 models.requests=2000",
    "cluster=blitz_a_1024x8 models.rate_per_s=1414 models.requests=2000",
)


def main(words: list[str]) -> int:
    """Print one line per number of models, or per cluster."""
    if words == ["clusters"]:
        return _clusters()
    example = "python -m benchmarks.many_models 10 100"
    changed = dict(word.split("=", 1) for word in words if "=" in word)
    if "models.count" in changed:
        raise UserError(f"models.count is the number of models itself: write {example}")
    counts = [count(word, "number of models", example) for word in words if "=" not in word]
    for models in counts or COUNTS:
        _measure(WORDS | changed | {"models.count": str(models)})
    return 0


def _clusters() -> int:
    """Each in a process of its own, whose memory is told."""
    for words in CLUSTERS:
        print(words, flush=True)
        called = [sys.executable, "-m", "benchmarks.many_models", "1000", *words.split()]
        if status := subprocess.run(called, check=False).returncode:
            return status
    return 0


def _measure(words: dict[str, str]) -> None:
    prepared = prepare(load_config([f"{key}={value}" for key, value in words.items()], "simulate"))
    done: list[Simulated] = []
    execute(prepared)  # imports what summaries need
    runs = measured(lambda: _once(prepared, done), REPEATS)
    requests, loads = len(prepared.workload), done[0].summary["loads"]["count"]
    looks = done[0].summary["duration_s"] * 10 / requests
    print(
        f"{words['models.count']:>5} models {runs.text('request')}   {loads / requests:.2f} loads, "
        f"{runs.best * requests / loads:,.0f} raw per load, at most {looks:.1f} looks   "
        f"peak {getrusage(RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB",
        flush=True,
    )


def _once(prepared: Prepared, done: list[Simulated]) -> float:
    """CPU seconds per request; the run is put into ``done``."""
    done[:] = [execute(prepared)]
    return done[0].cpu_s / len(prepared.workload)


if __name__ == "__main__":
    command("benchmarks.many_models", __doc__, main)
