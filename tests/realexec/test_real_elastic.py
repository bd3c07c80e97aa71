"""Real runs in which something moves: hand-overs, loads through a chain, live layers, migrations, a death.

A run in which nothing moved proves nothing, so each says how much did. Tokens are an undisturbed worker's.
"""

import json
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.assemble.clients import client_starts_ns
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.config.compose.compose import load_config
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.processes import REAL, patience_s, started, wait_until
from tests.worlds.quick_scalers import NAMES, scaler_words
from tests.worlds.real_runs import of_group
from tests.worlds.real_workers import worker_number

pytestmark = pytest.mark.real

TRACE = ("trace=azure_conv_like", "journal=true")
SHORT = "trace.tokens_scale=0.05"
# What one instance cannot do in time, by far: it scales up on any machine.
LIVE = (
    "system=blitzscale",
    "system.instances.split=false",
    "system.scaler.prefill=[0.01,0.02]",
    "system.live.slo_ms=0",
    "trace.rate_per_s=200",
    "workers=3",
)
# A load takes 3 s then, and what is to be served longer than any look at the journal.
SLOW = ("cluster.nic_gbps=0.04", "trace.tokens_scale=0.2", "trace.limit=60")
MAIN = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"


def moved(folder: Path, *words: str, preempts: bool = False, nic: float | None = 2.5e7) -> dict[str, Any]:
    """A real run whose tokens are exact and whose journal replays; its summary.

    ``preempts``: memory may be so short that some are computed again. ``nic``: bytes/s between workers;
    None: they have no links.
    """
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert realexec_cli.run(["run", *TRACE, *words, f"out={folder}"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    real = summary["real"]
    assert (real["tokens_different"], real["first_difference"], real["workers_lost"]) == (0, None, [])
    assert real["tokens_checked"] > 100 and real["tokens_unchecked"] == 0
    assert preempts or real["tokens_recomputed"] == 0
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    assert real["shaped_bytes_per_s"].get("nic") == nic
    assert cli.run(["replay", str(folder), *(word for word in words if "=tests." in word)]) == 0
    return summary


def test_prompts_are_handed_over_for_real(tmp_path: Path) -> None:
    words = ("system=distserve_half", "workers=2", "trace.limit=12", SHORT, "transport=tcp")
    real = moved(tmp_path / "run", *words)["real"]
    assert real["handoffs"] >= 8 and real["kv_bytes"] > 0 and real["loads"] == 0
    assert real["transport"] == "tcp"


def test_instances_load_through_a_chain_and_run_the_layers_they_have(tmp_path: Path) -> None:
    # A layer takes half a second, and the requests longer than both loads: passes begin at each count.
    slow = ("cluster.nic_gbps=0.05", "trace.limit=160")
    summary = moved(tmp_path / "run", *LIVE, SHORT, *slow, nic=6.25e6)
    real = summary["real"]
    assert real["loads"] >= 2 and real["units_forwarded"] > 0, "the second instance loads from the first"
    assert real["loaded_bytes"] >= 2 * 15_803_392
    assert real["live_passes"] == summary["live"]["passes"] > 0
    assert set(summary["live"]["layer_counts_seen"]) <= set(real["live_layer_counts"])
    assert len(real["live_layer_counts"]) >= 3 and real["activation_bytes"] > 0
    cpu = real["cpu"]
    assert cpu["reads_s"] > 0 and cpu["share_of_messages"] < cpu["share_beside_steps"]


def test_an_instance_that_is_to_go_is_drained_by_migration_for_real(tmp_path: Path) -> None:
    system = ("system=llumnix_base_autoscaled", "system/dispatch=round_robin", "system/provision=multicast")
    two = ("workers=2", *(f"system.instances.{key}" for key in ("both=2", "both_min=1", "both_max=2")))
    band = ("system.instances.monitor_period_ms=100", "system.scaler.width=5")
    long = ("trace.rate_per_s=50", "trace.tokens_scale=0.5", "engine.kv_tokens=8192", "trace.limit=4")
    summary = moved(tmp_path / "run", *system, *two, *band, *long, "engine.max_new_tokens=400")
    assert summary["real"]["migrations"] == summary["migrations"]["committed"] > 0
    assert summary["instances"]["mean"] < 2, "the other one is reclaimed before the run ends"


def test_running_requests_migrate_for_real(tmp_path: Path) -> None:
    # All at once on one of two, with outputs of hundreds of steps: they move whatever the machine's speed.
    crowd = ("system/dispatch=tests.worlds.first_only:FirstOnly", "workers=2", "trace.rate_per_s=5000")
    often = ("system/migration=least_loaded", "migration.period_ms=20", "trace.tokens_scale=0.3")
    summary = moved(tmp_path / "run", "system=vllm", *crowd, *often, "trace.limit=10")
    assert summary["real"]["migrations"] == summary["migrations"]["committed"] > 0
    assert summary["real"]["kv_bytes"] > 0 and summary["real"]["handoffs"] == 0


def test_clients_of_a_closed_loop_wait_for_their_answers_for_real(tmp_path: Path) -> None:
    clients = ("trace.clients=3", "trace.client_think_s=0.01", "trace.client_start_s=0.02")
    moved(tmp_path / "run", "system=vllm", "workers=2", *clients, "trace.limit=15", SHORT, nic=None)
    requests = pd.read_parquet(tmp_path / "run" / "requests.parquet").sort_values("arrival_ns")
    arrivals, ends = requests["arrival_ns"].to_numpy(), requests["finish_ns"].to_numpy()
    starts = client_starts_ns(load_config([*clients, "out=unused"], "realexec"))
    assert starts[0] == 0 and set(starts) <= set(arrivals), "clients begin when they do in a simulation"
    in_flight = [((arrivals <= one) & (ends > one)).sum() for one in arrivals]
    assert max(in_flight) <= 3, "nobody sends before the answer is there"
    again = np.sort([one for one in arrivals if one not in starts])
    assert (again >= np.sort(ends)[:-3] + 10_000_000).all(), "and it is thought about"


def test_warm_up_requests_are_run_for_real_and_not_counted(tmp_path: Path) -> None:
    load = ("trace.clients=3", "trace.client_start_s=0", "trace.warmup_requests=4", "trace.limit=9")
    summary = moved(tmp_path / "run", "system=vllm", "workers=2", *load, SHORT, nic=None)
    requests = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    assert sorted(requests["request"]) == list(range(4, 13))
    assert summary["requests"]["arrived"] == 9 and summary["warmup"]["finished"] == 4
    begun_ns = requests["arrival_ns"].min()
    assert (requests["arrival_ns"] == begun_ns).sum() == 3 and summary["warmup"]["seconds"] == begun_ns / 1e9


def test_llumnix_moves_running_requests_for_real_by_its_own_load_reports(tmp_path: Path) -> None:
    """All come at once, and memory for a few of them: who waits needs blocks that lie on both instances."""
    crowd = ("workers=2", "trace.rate_per_s=5000", "trace.limit=40", SHORT)
    little = ("engine.kv_tokens=1024", "engine.max_new_tokens=128")
    summary = moved(tmp_path / "run", "system=llumnix", *crowd, *little, preempts=True)
    assert summary["real"]["migrations"] == summary["migrations"]["committed"] > 0
    assert summary["real"]["kv_bytes"] > 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("victim", [0, 1], ids=["source", "middle of the chain"])
def test_a_worker_dies_in_the_middle_of_a_load(tmp_path: Path, victim: int) -> None:
    """The load stops, only what the dead worker had fails, and the journal replays."""
    pytest.importorskip("torch")
    folder = tmp_path / "run"

    def lines() -> list[bytes]:
        return [line for file in tmp_path.glob("*/journal") for line in file.read_bytes().splitlines()]

    def workers(group: int) -> list[int]:
        found = {}
        for number in of_group(group):
            if (worker := worker_number(number)) is not None:
                found[worker] = number
        return [found[one] for one in sorted(found)]

    def loads() -> bool:
        assert run.poll() is None, run.communicate()
        return any(b'["load",' in line for line in lines())

    words = ("run", *TRACE, *LIVE, *SLOW, "out=run")
    with started(MAIN, *words, cwd=tmp_path, start_new_session=True) as run:
        wait_until(loads, "nothing was loaded", REAL)
        os.kill(workers(run.pid)[victim], signal.SIGKILL)
        out, err = run.communicate(timeout=patience_s(REAL))
    assert run.returncode in ((4,) if victim == 0 else (0, 4)) and err == "", out
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    requests, real = summary["requests"], summary["real"]
    assert requests["failed"] + requests["finished"] == 60
    assert requests["failed"] > 0 if victim == 0 else requests["finished"] > 0
    assert real["workers_lost"] == [[victim, "the worker process was ended by SIGKILL"]]
    assert real["loads_stopped"] > 0 and real["tokens_different"] == 0
    told = b"\n".join(lines())
    assert all(b'["%s",%d,' % (name, victim) in told for name in (b"lost", b"losthost"))
    assert b'["loadstopped",' in told
    assert cli.run(["replay", str(folder)]) == 0


@on_drawn_seeds([0, 2, 6])
def test_drawn_scalers_of_metrics_start_workers(seed: int, tmp_path: Path) -> None:
    """Three of them: a run takes some ten seconds. tests/realexec/test_http_scalers.py has all."""
    # Without the one that needs requests to finish while others arrive: some machines are too slow.
    name = Random(seed).choice([name for name in NAMES if name != "dynamo_throughput"])
    words = ("system=blitzscale", "system/live=none", "system.instances.split=false", "workers=2")
    load = ("trace.limit=60", "trace.rate_per_s=150")
    summary = moved(tmp_path / "run", *words, *load, *scaler_words(name))
    assert summary["real"]["loads"] >= 1


def test_a_scaler_of_metrics_starts_workers_by_what_was_scraped(tmp_path: Path) -> None:
    words = ("system=blitzscale", "system/live=none", "system.instances.split=false", "workers=3")
    load = ("trace.limit=60", "trace.rate_per_s=12")
    kpa = ("system/scaler=kpa", "system.scaler.target=1", "system.scaler.tick_s=0.5")
    windows = ("system.scaler.stable_s=4", "system.scaler.panic_s=1")
    summary = moved(tmp_path / "run", *words, *load, *kpa, *windows)
    assert summary["real"]["loads"] >= 1
    (first, *_) = [event for event in summary["scale_events"] if event["act"] == "load"]
    assert first["reason"].endswith("the target 1 per instance")
