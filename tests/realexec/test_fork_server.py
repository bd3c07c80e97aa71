"""What forks workers: it imports once, stands for many pools, and ends with the driver."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from realexec.driver.processes import WorkerPool
from realexec.launchers import fork_server, local
from realexec.wire.messages import Died, Ready
from serving.vocabulary.errors import UserError
from tests.worlds.processes import patience_s, started, wait_until
from tests.worlds.real_workers import forks_of, own_workers, workers_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks workers")
WORLD = "tests.worlds.real_workers"
BEFORE: list[int] = []


@pytest.fixture(autouse=True)
def _own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test its own fork server, which imports nothing. Other tests' servers may run beside it."""
    monkeypatch.setattr(fork_server, "_IMPORTED", ())
    BEFORE[:] = forks_of(os.getpid())
    monkeypatch.setattr(local, "_may_be_forked", lambda _: True)
    monkeypatch.setattr(fork_server, "_OWN", fork_server._OfThread())
    yield
    if fork_server._OWN.server is not None:
        fork_server._OWN.server.close()


def pool_of(entry: str = "echo", workers: int = 1) -> WorkerPool:
    return WorkerPool(workers, {}, 5, 4, entry=f"{WORLD}:{entry}")


def all_forks() -> list[int]:
    """PIDs of the fork servers that this test has started."""
    return [one for one in forks_of(os.getpid()) if one not in BEFORE]


def forks() -> int:
    """PID of the one fork server that this test has started."""
    (found,) = all_forks()
    return found


def test_one_process_forks_the_workers_of_many_pools() -> None:
    seen = set()
    for workers in (1, 3):
        with pool_of(workers=workers) as pool:
            pool.wait_ready(patience_s())
            assert set(own_workers()) == set(range(workers))
            assert own_workers() == {one.worker: one.process.pid for one in pool.workers}
            seen.add(forks())
        assert own_workers() == {}
    assert len(seen) == 1


def test_it_can_begin_to_import_before_workers_are_asked_for() -> None:
    local.import_early("cuda")
    assert fork_server._OWN.server is None
    local.import_early("cpu")
    wait_until(lambda: len(all_forks()) == 1, "it has not started")
    early = forks()
    with pool_of() as pool:
        pool.wait_ready(patience_s())
        assert forks() == early


def test_a_worker_is_where_the_driver_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folder, environment and paths are those at its start, not those when the fork server began."""
    with pool_of() as pool:
        pool.wait_ready(patience_s())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVETWIN_TEST", "here")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "a_policy_of_mine.py").write_text(
        "import os, pathlib\nfrom realexec.wire.messages import Died\n"
        "def say(control, _): control.send(Died(os.environ['SERVETWIN_TEST'] + ' ' + os.getcwd()))\n"
    )
    with WorkerPool(1, {}, 5, 4, entry="a_policy_of_mine:say") as pool:
        assert pool.inbox.get(timeout=patience_s()) == (0, Died(f"here {tmp_path}"))


def test_where_it_was_killed_its_workers_are_lost_and_the_next_pool_has_another() -> None:
    with pool_of(workers=2) as pool:
        pool.wait_ready(patience_s())
        killed = forks()
        os.kill(killed, signal.SIGKILL)
        lost = {pool.inbox.get(timeout=patience_s()) for _ in range(2)}
        assert lost == {(one, Died("the worker process was ended by SIGKILL")) for one in range(2)}
    with pool_of() as pool:
        assert pool.inbox.get(timeout=patience_s()) == (0, Ready())
        assert forks() != killed


def test_a_pool_is_closed_at_once_while_the_imports_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers that were still to be forked never are anybody's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "waits_for_a_file.py").write_text(
        "import pathlib, time\nwhile not (pathlib.Path(__file__).parent / 'go').exists(): time.sleep(0.01)"
    )
    monkeypatch.setattr(fork_server, "_IMPORTED", ("waits_for_a_file",))
    with pool_of(workers=2) as pool:
        with pytest.raises(UserError, match=r"Only 0 of 2 workers were ready after 0\.3 s"):
            pool.wait_ready(0.3)
        assert [one.process.pid for one in pool.workers] == [0, 0]
        assert all(one.process.ran() and one.process.cpu_ns() == 0 for one in pool.workers)
    (tmp_path / "go").touch()
    with pool_of() as pool:
        pool.wait_ready(patience_s())
        wait_until(lambda: list(own_workers()) == [0], "those of the pool that was closed live")


def test_each_thread_has_its_own_which_ends_with_it() -> None:
    """Workers end when the thread that started them does, and no others."""
    pools: list[WorkerPool] = []
    ready, leave = threading.Event(), threading.Event()

    def start() -> None:
        pools.append(pool_of())
        pools[0].wait_ready(patience_s())
        ready.set()
        leave.wait()

    with pool_of() as ours:
        ours.wait_ready(patience_s())
        thread = threading.Thread(target=start)
        thread.start()
        assert ready.wait(patience_s())
        assert len(all_forks()) == 2
        leave.set()
        thread.join()
        lost = Died("the worker process was ended by SIGKILL")
        assert pools[0].inbox.get(timeout=patience_s()) == (0, lost)
        pools[0].close()
        assert ours.inbox.empty() and own_workers() == {0: ours.workers[0].process.pid}


DRIVER = f"""
import time
from realexec.launchers import fork_server, local
local._may_be_forked = lambda _: True
fork_server._IMPORTED = ("time",)
from realexec.driver.processes import WorkerPool
with WorkerPool(2, {{}}, 5, 4, entry="{WORLD}:echo") as pool:
    pool.wait_ready(1000)
print("begun", flush=True)
time.sleep(100_000)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_the_driver(how: signal.Signals) -> None:
    with started(DRIVER) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begun\n"
        assert workers_of(driver.pid) == {}
        (server,) = forks_of(driver.pid)
        driver.send_signal(how)
        driver.wait(patience_s())
        began_s = time.monotonic()
        wait_until(lambda: not Path(f"/proc/{server}").exists(), "it outlives the driver")
        assert time.monotonic() - began_s < patience_s()
