"""python -m tests.rdma.one_run: a real run over verbs that loads by a chain and migrates; says what moved."""

import json
import sys
from functools import partial
from pathlib import Path

from experiments import cli, realexec_cli
from realexec import driver

# An emulated processor takes minutes for what a worker imports.
START_S = 1500.0
OUT = Path("/tmp/run-over-verbs")
WORDS = (
    "transport=verbs", "system=blitzscale", "system.instances.split=false", "system/live=none",
    "system/migration=least_loaded", "system/dispatch=round_robin", "cluster=local", "workers=3",
    "model=tiny_llama", "trace=azure_conv_like", "trace.limit=14", "trace.tokens_scale=0.1",
    "trace.rate_per_s=60", "system.scaler.prefill=[0.02,0.05]", "migration.period_ms=20", "journal=true",
)  # fmt: skip


def main() -> int:
    """0: every token is right, units were passed on, something migrated, and the journal replays."""
    print("realexec run", *WORDS, flush=True)
    driver.execute = partial(driver.execute, start_timeout_s=START_S)
    if realexec_cli.run(["run", *WORDS, f"out={OUT}"]):
        return 1
    real = json.loads((OUT / "summary.json").read_text())["real"]
    shown = ("transport", "loads", "units_forwarded", "migrations", "tokens_checked", "tokens_different")
    print({name: real[name] for name in shown}, flush=True)
    assert real["transport"] == "verbs" and not real["workers_lost"]
    assert real["tokens_checked"] and not real["tokens_different"]
    assert real["loads"] >= 2 and real["units_forwarded"] >= 1 and real["migrations"] >= 1
    return cli.run(["replay", str(OUT)])


if __name__ == "__main__":
    sys.exit(main())
