"""How fast the simulator is, in raw SimPy timeouts per request (see benchmarks/README.md).

python -m benchmarks.speed            all scenarios but the large one
python -m benchmarks.speed static     one of them
python -m benchmarks.speed large      1.43 million requests, with peak memory
"""

import os
import resource
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.raw import Runs, measured
from experiments.compose import load_config
from experiments.config import RunConfig
from experiments.journal_file import JournalFile
from experiments.simulate import Prepared, execute, prepare
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profile_file import save_profile
from serving.errors import UserError
from traces.errors import TraceError

REPEATS = 7
BASE = ["system=vllm", "model=llama3_8b", "out=unused"]
REAL = ["trace=azure_conv", "trace.limit=10000", "cluster=a100_x8"]
# The whole hour on the four hosts of eight GPUs of BlitzScale's cluster A.
HOUR = ["trace=azure_conv", "cluster=blitz_a"]
LARGER = [*HOUR, "model=mistral_24b", "model.tp=2", "trace.rate_scale=3.5"]
# Those of its measured runs, of which the tables have no more than 256.
SEATS = ["engine.max_num_seqs=128", "engine.max_num_batched_tokens=2048"]
LIKE = ["trace=azure_conv_like", "trace.requests=10000"]
# Scenario -> the tables it runs on, below SERVETWIN_PROFILES; it is left out when that is not set.
TABLES = {
    "op_tables": (
        "vidur",
        "vidur/compute/a100/meta-llama/Meta-Llama-3-8B/mlp.csv",
        "a100_80g",
        "aiconfigurator/a100_sxm",
    ),
    "op_tables_mixed": (
        "llmservingsim",
        "llmservingsim/RTXPRO6000/meta-llama/Llama-3.1-8B",
        "rtx_pro_6000",
        None,
    ),
}

# name -> (overrides, budget in raw per request; None where the budget is relative to another scenario)
SCENARIOS: dict[str, tuple[list[str], float | None]] = {
    "static": (REAL, 55),
    "op_tables": ([*REAL, "engine.version=0.14.0"], 65),
    # Prompts and decodes in one attention kernel, and what unequal contexts cost, measured too.
    "op_tables_mixed": ([*REAL[:2], "cluster=rtx_pro_6000_x8", *SEATS], 65),
    "prefill_first": ([*REAL, "engine=vllm_v0"], None),
    "utilization_80": ([*LIKE, "cluster=a100_x8", "trace.utilization=0.8"], 82.5),
    "journal": (REAL, 75),
    # Prefill and decode apart: the KV of every request is a transfer on the fabric.
    "distserve_full": ([*HOUR, "system=distserve_full"], 75),
    "distserve_full_24b": ([*LARGER, "system=distserve_full"], 75),
    # Beside that, instances that come and go, and their parameters over the same links.
    "blitz_multicast": ([*HOUR, "system=blitz_multicast"], 110),
    "blitz_multicast_24b": ([*LARGER, "system=blitz_multicast"], 110),
    # And they work while their parameters come.
    "blitzscale": ([*HOUR, "system=blitzscale"], 120),
    "blitzscale_24b": ([*LARGER, "system=blitzscale"], 120),
    "replicas_8": ([*LIKE, "cluster=a100_x8", "trace.utilization=0.3"], None),
    "replicas_1024": (
        ["trace=azure_conv_like", "trace.requests=100000", "cluster=a100_x1024", "trace.utilization=0.3"],
        None,
    ),
    "replicas_1024_light": (
        ["trace=azure_conv_like", "trace.requests=100000", "cluster=a100_x1024", "trace.rate_per_s=707.84"],
        None,
    ),
}


def measure(name: str) -> Runs:
    """CPU per request of several runs, and raw beside them."""
    overrides, _ = SCENARIOS[name]
    with TemporaryDirectory() as folder:
        overrides = [*overrides, *_profile(name, Path(folder) / "profile.json")]
        prepared = prepare(load_config(_words(overrides), "simulate"))
    repeats = 3 if len(prepared.workload) > 50_000 else REPEATS
    return measured(lambda: _once(prepared, name == "journal"), repeats)


def _words(overrides: list[str]) -> list[str]:
    """The scenario's words, and those of ``BASE`` whose keys it does not set."""
    own = {word.partition("=")[0] for word in overrides}
    return [*(word for word in BASE if word.partition("=")[0] not in own), *overrides]


def _profile(name: str, path: Path) -> list[str]:
    """Import the scenario's tables into ``path``; the words that name it."""
    if name not in TABLES:
        return []
    kind, tables, gpu, attention = TABLES[name]
    root = Path(os.environ["SERVETWIN_PROFILES"])
    other = None if attention is None else root / attention
    request = ImportRequest(root / tables, gpu, "llama3_8b", 1, aiconfigurator=other)
    save_profile(import_profile(kind, request), path)
    return [f"engine.profile={path}"]


def _once(prepared: Prepared, journal: bool) -> float:
    """CPU seconds per request."""
    with TemporaryDirectory() as folder:
        if journal:
            with JournalFile(Path(folder) / "journal", {}) as file:
                cpu_s = execute(prepared, file).cpu_s
        else:
            cpu_s = execute(prepared).cpu_s
    return cpu_s / len(prepared.workload)


def _all_of_it(config: RunConfig, requests: int) -> float:
    """CPU seconds per request; the trace is drawn outside, and its memory counts."""
    return execute(prepare(config)).cpu_s / requests


def large() -> None:
    """The size of BurstGPT: is the cost per request the same, and does memory stay below 1 GB?"""
    overrides = [*BASE, "trace=azure_conv_like", "cluster=a100_x8"]
    for requests in (10_000, 100_000, 1_430_000):
        config = load_config([*overrides, f"trace.requests={requests}"], "simulate")
        started = process_time()
        runs = measured(partial(_all_of_it, config, requests), 1)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{requests:9d} requests: {runs.told('request')}   "
            f"{process_time() - started:6.1f} s CPU in all, peak {peak_mb:4.0f} MB",
            flush=True,
        )


def main(names: list[str]) -> None:
    """Print one line per scenario."""
    if names == ["large"]:
        return large()
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise UserError(f"there is no scenario {unknown[0]!r}: write large or {', '.join(SCENARIOS)}")
    for name in names or SCENARIOS:
        if name in TABLES and "SERVETWIN_PROFILES" not in os.environ:
            print(f"{name:20s} left out: SERVETWIN_PROFILES does not name the measured tables")
            continue
        runs = measure(name)
        budget = SCENARIOS[name][1]
        print(
            f"{name:20s} {runs.told('request')}   {1 / runs.best_cpu_s:9,.0f} requests per CPU-s   "
            f"budget {budget or '-'}",
            flush=True,
        )
    return None


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (HardwareError, TraceError, UserError) as error:
        sys.exit(f"benchmarks.speed: {error}")
