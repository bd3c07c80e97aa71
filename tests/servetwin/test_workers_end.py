"""Workers of sweeps, plans and figures end with the process that started them, and leave nothing for ever."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from tests.worlds.processes import started, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LONG = ("trace=azure_conv_like", "trace.requests=100000", "engine.exact=true", "cluster=a100_x2")
MAIN = "import sys; from servetwin.cli import main as cli; sys.exit(cli.run(sys.argv[1:]))"
IN_A_THREAD = (
    "import sys, threading; from servetwin.cli import main as cli; "
    "one = threading.Thread(target=cli.run, args=(sys.argv[1:],)); one.start(); one.join()"
)
SWEEP = ("sweep", *LONG, "seed=range(0,8)", "processes=2", "folders=true")
PLAN = ("plan", *LONG[:2], "trace.rate_per_s=30", "model=llama3_8b", "gpu=a100", "slo.ttft_p99_ms=500")
FIGURES = (
    "import sys, time; from experiments.common.runs import _pool; "
    "pool = _pool(2); [pool.submit(time.sleep, 1000) for _ in range(2)]; time.sleep(1000)"
)


def children_of(pid: int) -> set[int]:
    """Processes of this kind's own; loky's and multiprocessing's trackers end by themselves."""
    found = set()
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                words = (place / "cmdline").read_bytes()
            except (OSError, ValueError, IndexError):
                continue
            if parent == pid and b"resource_tracker" not in words:
                found.add(int(place.name))
    return found


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def ends_with(running: "subprocess.Popen[str]", begun: Callable[[set[int]], bool]) -> None:
    """Kill the process when its workers have begun; they end too."""
    wait_until(lambda: begun(children_of(running.pid)), "no workers began")
    workers = children_of(running.pid)
    try:
        running.send_signal(signal.SIGKILL)
        running.wait()
        wait_until(lambda: not any(map(is_there, workers)), "workers outlived the process that began them")
    finally:
        for worker in filter(is_there, workers):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("code", [MAIN, IN_A_THREAD], ids=["main thread", "another thread"])
def test_a_sweeps_workers_end_with_it_and_its_unfinished_folders_go(code: str, tmp_path: Path) -> None:
    runs = tmp_path / "out" / "runs"

    def unfinished() -> int:
        return len(list(runs.glob(".servetwin-unfinished-*"))) if runs.is_dir() else 0

    with started(code, *SWEEP, f"out={tmp_path / 'out'}") as running:
        ends_with(running, lambda workers: len(workers) >= 2 and unfinished() == 2)
    assert unfinished() == 2
    words = ["trace=azure_conv_like", "trace.requests=5", "cluster=a100_x2", "seed=0", "folders=true"]
    assert cli.run(["sweep", *words, f"out={tmp_path / 'out'}"]) == 0
    assert unfinished() == 0 and len(list(runs.iterdir())) == 1


def test_a_plans_workers_end_with_it() -> None:
    with started(MAIN, *PLAN) as running:
        ends_with(running, lambda workers: len(workers) >= 2)


def test_the_workers_of_figures_end_with_their_command() -> None:
    with started(FIGURES) as running:
        ends_with(running, lambda workers: len(workers) >= 2)
