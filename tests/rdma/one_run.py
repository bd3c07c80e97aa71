"""python -m tests.rdma.one_run: a real run over verbs that loads by a chain and migrates; says what moved.

A line with the time follows every step, so that a slow machine can be told from one that hangs.
"""

import importlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.rdma.forked_workers import ForkedWorkers

# By far the most of the time; workers are forked from the process that has them.
IMPORTS = (
    "numpy", "torch", "transformers.models.llama.modeling_llama", "realexec.worker.stage_work",
    "realexec.driver.verify", "realexec.driver.driver",
    "pandas", "servetwin.config.compose.hydra_merge", "servetwin.run.real_run",
)  # fmt: skip
WORKERS = 3
# Of the product's limits the one that an emulated processor needs longer for.
START_S = 600.0
OUT = Path("/share/run-over-verbs")
# So small that Python is most of what it costs.
MODEL = Path(__file__).with_name("tiny_model.json")
# One instance at the start; after two seconds, when workers have joined, its queue wants two more. They load
# in a chain, at 125 KB/s: the second reads from one that is loading. Then requests migrate to the empty ones.
WORDS = (
    "system=blitzscale", "system.instances.split=false", "system/live=none", "system/dispatch=round_robin",
    "system/migration=least_loaded", "system.scaler.prefill=[0.0001,0.001]",
    "system.scaler.scale_down_ms=1000000", "system.instances.monitor_period_ms=2000",
    "migration.period_ms=200", "cluster=local", "cluster.nic_gbps=0.001", f"workers={WORKERS}",
    f"model={MODEL}", "engine.max_num_seqs=8", "trace=azure_conv_like", "trace.limit=8",
    "trace.tokens_scale=0.1", "trace.rate_per_s=60", "journal=true", "log=json",
)  # fmt: skip
SHOWN = ("transport", "loads", "units_forwarded", "migrations", "tokens_checked", "tokens_different")


def main(transport: str = "verbs", out: Path = OUT) -> int:
    """0: every token is right, units were passed on, and something migrated."""
    say = partial(_say, time.monotonic())
    for name in IMPORTS:
        importlib.import_module(name)
        say(f"{name} is imported")
    workers = ForkedWorkers(WORKERS)  # before there is a second thread
    driver: Any = importlib.import_module("realexec.driver.driver")
    driver.execute = partial(driver.execute, start_timeout_s=START_S)
    words = [*WORDS, f"transport={transport}", f"out={out}"]
    say(f"realexec run {' '.join(words)}")
    with workers.in_use():
        status = importlib.import_module("servetwin.cli.realexec").run(["run", *words])
    say(f"the run ended with exit status {status}")
    return status or _judged(json.loads((out / "summary.json").read_text())["real"])


def _judged(real: dict[str, Any]) -> int:
    print({name: real[name] for name in SHOWN}, flush=True)
    assert not real["workers_lost"]
    assert real["tokens_checked"] and not real["tokens_different"]
    assert real["loads"] >= 2 and real["units_forwarded"] >= 1 and real["migrations"] >= 1
    return 0


def _say(began_s: float, what: str) -> None:
    print(f"{time.monotonic() - began_s:7.1f} s, {time.process_time():6.1f} s of CPU: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
