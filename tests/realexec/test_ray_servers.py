"""Servers that a run starts on two nodes of a Ray cluster: placed, ready, stopped, lost, nothing left."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.processes import patience_s, started, wait_until
from tests.worlds.quick_scalers import scaler_words
from tests.worlds.ray_clusters import cluster_of, kill_node, node_at
from tests.worlds.started_servers import LOAD, MAIN, left, of_word, script, wait_gone, words

pytestmark = pytest.mark.ray

SECOND = "127.0.0.2"  # the first node has an address of this machine
PHASES = ("placed_s", "process_s", "first_log_s", "listens_s", "listed_s", "ready_s")
SLOW = ("trace.limit=60", "trace.rate_scale=4", "trace.tokens_scale=0.2", "http.check_tokens=200")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_of(2, [SECOND]) as made:
        yield made


def on_ray(cluster: Any) -> tuple[str, str]:
    return "http.launcher=ray", f"ray.address={cluster.address}"


def summary_of(folder: Path) -> dict[str, Any]:
    """Of a run whose requests all finished, with the right tokens, and whose journal replays."""
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    assert summary["real"]["tokens_different"] == summary["real"]["recomputed_different"] == 0
    assert cli.run(["replay", str(folder / "run")]) == 0
    wait_gone(folder)
    return summary


def test_a_scaler_starts_servers_on_both_nodes_and_stops_them(cluster: Any, tmp_path: Path) -> None:
    command = script(tmp_path, "way_up_s=0.2")
    assert realexec_cli.run(words(tmp_path, command, *on_ray(cluster), *scaler_words("hpa"))) == 0
    summary = summary_of(tmp_path)
    real, starts = summary["real"], summary["real"]["starts"]
    acts = [event["act"] for event in summary["scale_events"]]
    assert len(starts["servers"]) == 1 + acts.count("ready") >= 2 and starts["failed"] == 0
    assert {start["host"] for start in starts["servers"]} == {cluster.head_node.node_ip_address, SECOND}
    for start in starts["servers"]:
        times = [start[name] for name in PHASES]
        assert times == sorted(times) and start["listens_s"] > start["process_s"] + 0.2
        assert start["log_says"] == {"read_parameters_s": 0.2}
        assert (start["cpus"], start["gpus"]) == (1, []) and start["host"] in start["node"]
        log = (tmp_path / "run" / start["log"]).read_text(encoding="utf-8")
        assert f"http://{start['host']}:{start['port']}\n" in log
    assert sum(starts["stopped"].values()) == acts.count("released") and real["workers_lost"] == []
    twin = [f"config={tmp_path / 'run'}", "driver.carries_out=http", "system.instances.start_total_s=2"]
    assert cli.run(["simulate", *twin, f"out={tmp_path / 'twin'}"]) == 0


def test_a_server_that_ignores_sigterm_is_killed(cluster: Any, tmp_path: Path) -> None:
    command, zero = script(tmp_path, "stubborn=true"), ("system.instances.both_min=0", "http.kill_s=0.1")
    slow = ("trace.limit=40", "trace.rate_scale=1", "trace.tokens_scale=0.1", "http.check_tokens=100")
    all_words = words(tmp_path, command, *on_ray(cluster), *scaler_words("keda"), *zero, servers=1, load=slow)
    assert realexec_cli.run(all_words) == 0
    stopped = summary_of(tmp_path)["real"]["starts"]["stopped"]
    assert stopped["by_sigkill"] >= 1 and stopped["by_sigterm"] == 0


@on_drawn_seeds([1, 2])
def test_nothing_is_left_of_a_killed_driver(seed: int, cluster: Any, tmp_path: Path) -> None:
    """Ray ends its actors, and what they had set aside is free for the next run."""
    random = Random(seed)
    run_words = words(tmp_path, script(tmp_path, "way_up_s=0.3"), *on_ray(cluster), *scaler_words("kpa"))
    with started(MAIN, *run_words, cwd=tmp_path) as run:
        wait_until(lambda: run.poll() is not None or left(tmp_path), "no server started")
        time.sleep(3 * random.random())
        run.send_signal(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        run.communicate(timeout=patience_s())
    wait_gone(tmp_path)


def actors_of(cluster: Any) -> list[int]:
    """The processes of its actors that have servers."""
    raylets = {one.process.pid for node in cluster.list_all_nodes() for one in node.all_processes["raylet"]}
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            of = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            if of in raylets and (stat.parent / "cmdline").read_bytes().startswith(b"ray::ServerActor"):
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("victim", "told"),
    [
        ("fake_openai", "its process was ended by SIGKILL"),
        ("server_keeper", "its process was ended by SIGKILL"),
        ("an actor", "its Ray actor is gone"),
    ],
)
def test_a_process_that_dies_costs_no_request(victim: str, told: str, cluster: Any, tmp_path: Path) -> None:
    """The server starts again, and what waits for it is answered then."""

    def streams() -> bool:
        assert run.poll() is None, run.communicate()
        return any(b'["streamed",' in file.read_bytes() for file in tmp_path.glob("*/journal"))

    run_words = words(
        tmp_path, script(tmp_path), *on_ray(cluster), *scaler_words("kpa"), servers=1, load=SLOW
    )
    with started(MAIN, *run_words, cwd=tmp_path) as run:
        wait_until(streams, "no token came")
        (process,) = actors_of(cluster) if victim == "an actor" else of_word(tmp_path, victim)
        os.kill(process, signal.SIGKILL)
        out, err = run.communicate(timeout=patience_s())
    assert run.returncode == 0, (out, err)
    if victim == "server_keeper":  # a daemon of the server, in a session of its own
        for one in left(tmp_path):
            os.kill(one, signal.SIGKILL)
    real = summary_of(tmp_path)["real"]
    assert len(real["starts"]["servers"]) >= 2 and told in real["workers_lost"][0][1]


def test_a_node_that_dies_costs_no_request(cluster: Any, tmp_path: Path) -> None:
    """Its server's requests continue on the other node's."""
    run_words = words(tmp_path, script(tmp_path), *on_ray(cluster), load=SLOW)
    run_words[run_words.index("system=allcache")] = "system=vllm"
    run_words.remove("system.instances.split=false")

    def streams() -> bool:
        assert run.poll() is None, run.communicate()
        return any(b'["streamed",' in file.read_bytes() for file in tmp_path.glob("*/journal"))

    victim = node_at(cluster, SECOND)
    with started(MAIN, *run_words, cwd=tmp_path) as run:
        wait_until(streams, "no token came")
        kill_node(cluster, victim)
        out, err = run.communicate(timeout=patience_s())
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20, node_ip_address=SECOND)
    assert run.returncode == 0, (out, err)
    ((_, cause),) = summary_of(tmp_path)["real"]["workers_lost"]
    assert cause.endswith(f"Ray node {victim[:8]} ({SECOND}) is gone")


@pytest.mark.parametrize(
    ("before", "keys", "told"),
    [
        ("echo no memory; exit 3", (), "its process ended with exit status 3; its log ends with: no memory"),
        (
            "sleep 100",
            ("http.start_timeout_s=30",),
            "it serves no model in time, but came to placed, process",
        ),
        ("", ("http.cores=2",), "has room for 0 servers of 2 CPUs each, and there may be 2"),
        ("", ("workers=3",), "has room for 2 servers of 1 CPU each, and there may be 3"),
        ("", ("http.gpus=1",), "has room for 0 servers of 1 GPU each, and there may be 2"),
        ("", ("ray.address=127.0.0.1:1",), "no Ray cluster is reached by ray.address=127.0.0.1:1 "),
    ],
)
def test_what_does_not_start_is_refused(
    before: str,
    keys: tuple[str, ...],
    told: str,
    cluster: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = script(tmp_path, before=before)
    own = [word.partition("=")[0] for word in keys]
    all_words = [
        word
        for word in words(tmp_path, command, *on_ray(cluster), *scaler_words("kpa"), load=LOAD)
        if word.partition("=")[0] not in own
    ] + list(keys)
    assert realexec_cli.run(all_words) == 2
    assert told in capsys.readouterr().err
    wait_gone(tmp_path)
    assert not (tmp_path / "run").exists()
