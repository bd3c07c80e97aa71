"""NIXL between two hosts: the suite of transports, a host that falls silent, a run of two Ray nodes.

A host is a network namespace, which reaches the other over a cable alone. Both are of one kernel, so memory
could be shared all the same; UCX_TLS=tcp leaves UCX nothing but the cable, which counts what comes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from realexec.transport_registry import lack_of
from servetwin.cli import main as cli
from tests.worlds.net_hosts import Host, cannot, two_hosts
from tests.worlds.processes import ROOT, patience_s, started

MB = 1 << 20
PORT = 6379  # of Ray's head: each host has ports of its own
LIVE = (
    "system=blitzscale", "system.instances.split=false", "system/live=none", "system/dispatch=round_robin",
    "system/migration=least_loaded", "migration.period_ms=50", "system.scaler.prefill=[0.01,0.02]",
    "workers=2", "model=tiny_llama", "trace=azure_conv_like", "trace.limit=40", "trace.tokens_scale=0.05",
    "trace.rate_per_s=100",
)  # fmt: skip


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if why := lack_of("nixl") or cannot():
        pytest.skip(why)
    with two_hosts() as found:
        yield found


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "UCX_TLS": "tcp", **more}


def peers_on(there: Host, here: Host) -> dict[str, str]:
    """For tests.worlds.arena_peers."""
    return environment(SERVETWIN_TESTS_PEERS=f"{there.name}={there.ip}", SERVETWIN_TESTS_HERE=here.ip)


def test_nixl_passes_the_suite_of_transports_between_two_hosts(hosts: tuple[Host, Host]) -> None:
    """256 MB among it, compared with what the peer has, and seen on the cable."""
    there, here = hosts
    suite = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "nixl",
        "tests/realexec/test_transports.py",
    ]
    done = subprocess.run(
        [*here.inside, sys.executable, *suite],
        cwd=ROOT, env=peers_on(there, here), text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout) or re.findall(r"^(\.+) ", done.stdout, re.M)
    assert (int(passed) if passed.isdecimal() else len(passed)) >= 30 and "skipped" not in done.stdout
    assert here.received_bytes() > 256 * MB


READS = """
import sys, time
import numpy as np
from realexec.memory.arena import Arena
from realexec.transports.base import PeerLost, Segment
from realexec.transports.nixl import NixlTransport
from tests.worlds.arena_peers import HERE, known_words, serving, words_at

size = 256 << 20
with serving("nixl", size) as peer, Arena.create(size) as arena:
    link = NixlTransport(arena, HERE, silence_s=2.0).connect(peer.address)
    began_s = time.monotonic()
    link.read([Segment(0, 0, size)])
    print(size / 1e6 / (time.monotonic() - began_s), flush=True)
    assert np.array_equal(words_at(arena, 0, size), known_words(0, size))
    sys.stdin.readline()
    try:
        while True:
            link.read([Segment(0, 0, size)])
    except PeerLost as error:
        print(error, flush=True)
"""


def test_nixl_says_that_a_host_has_fallen_silent(
    hosts: tuple[Host, Host], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cable is pulled in the middle of reads, which breaks no connection."""
    there, here = hosts
    with started(READS, inside=here.inside, stdin=-1, env=peers_on(there, here)) as reader:
        assert reader.stdin is not None and reader.stdout is not None and reader.stderr is not None
        rate = reader.stdout.readline()
        assert rate, reader.stderr.read()
        with capsys.disabled():
            print(f"\nnixl: 256 MB between two hosts at {float(rate):.0f} MB/s")
        reader.stdin.write("\n")
        reader.stdin.flush()
        time.sleep(0.5)
        there.unplug()
        began_s = time.monotonic()
        assert reader.stdout.readline() == "nothing was heard of the peer for 2 s during a read\n"
        assert time.monotonic() - began_s < patience_s()


@pytest.fixture
def cluster(hosts: tuple[Host, Host]) -> Iterator[tuple[Host, Host]]:
    """A Ray node with one CPU on each, which end with the hosts."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    # Ray's sockets lie in its folder, and their paths are short.
    with tempfile.TemporaryDirectory(prefix="st-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        for host in hosts:
            head = ["--head", f"--port={PORT}", f"--temp-dir={folder}", "--include-dashboard=false"]
            where = head if host is hosts[0] else [f"--address={hosts[0].ip}:{PORT}"]
            ray = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={host.ip}"]
            done = subprocess.run(
                [*host.inside, *ray, *where, "--num-cpus=1", f"--object-store-memory={80 * MB}"],
                env=environment(RAY_raylet_start_wait_time_s="300"), text=True, capture_output=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        yield hosts


@pytest.mark.ray
def test_a_run_over_nixl_on_two_hosts_changes_no_token(cluster: tuple[Host, Host], tmp_path: Path) -> None:
    """A worker on each: the second loads its parameters from the first, and requests move between them."""
    first, second = cluster
    before = second.received_bytes()
    on_ray = ("launcher=ray", f"ray.address={first.ip}:{PORT}", "transport=nixl", "journal=true")
    done = subprocess.run(
        [*first.inside, sys.executable, "-m", "servetwin.cli.realexec", "run", *LIVE, *on_ray,
         f"out={tmp_path}/run"],
        cwd=ROOT, env=environment(), text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    real: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text())["real"]
    assert len(set(real["places"])) == 2 and real["transport"] == "nixl"
    assert real["loads"] >= 1 and real["migrations"] >= 1 and real["workers_lost"] == []
    assert real["tokens_checked"] > 300 and real["tokens_different"] == 0
    assert second.received_bytes() - before > 12 * MB, "the parameters came over the cable"
    assert cli.run(["replay", f"{tmp_path}/run"]) == 0
