"""Workers without a model: started, reached, watched and ended, whatever they do."""

import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from realexec.driver.processes import WorkerPool, WorkerProcess
from realexec.launchers import fork_server, local
from realexec.wire.frames import ChannelClosed
from realexec.wire.handshake import new_secret
from realexec.wire.listener import LOOPBACK, dial
from realexec.wire.messages import Alive, Died, Forget, Hold, Ready, StepsDone, StopSteps
from serving.vocabulary.errors import UserError
from tests.worlds.processes import patience_s, started, wait_until
from tests.worlds.real_workers import own_workers, workers_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")

WORLD = "tests.worlds.real_workers"
FAILS, EXITS, COMPUTES, COMPUTES_ALONE, HANGS = range(5)


@pytest.fixture(params=[False, True], ids=["fresh", "forked"], autouse=True)
def forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each test twice: with fresh interpreters, and with workers that are forked."""
    if request.param and sys.platform != "linux":
        pytest.skip("only Linux ends forked workers with the process that forks them")
    monkeypatch.setattr(local, "_may_be_forked", lambda _: request.param)
    monkeypatch.setattr(fork_server, "_IMPORTED", ("realexec.worker.worker",))
    return bool(request.param)


def pool_of(entry: str, workers: int = 1, **options: Any) -> WorkerPool:
    return WorkerPool(workers, {}, 5, 4, entry=f"{WORLD}:{entry}", **options)


def ready(pool: WorkerPool) -> WorkerPool:
    pool.wait_ready(patience_s())
    return pool


def end_of(pool: WorkerPool) -> tuple[int, Died]:
    while True:
        worker, message = pool.inbox.get(timeout=patience_s())
        if isinstance(message, Died):
            return worker, message


@pytest.mark.parametrize("host", [None, LOOPBACK], ids=["unix", "tcp"])
def test_messages_go_both_ways_in_order(host: str | None) -> None:
    with pool_of("echo", 2, tcp_host=host) as pool:
        for worker in pool.workers:
            worker.send(Hold(0, (7,), (), 1))  # before anybody has connected
        ready_or_done = [pool.inbox.get(timeout=patience_s()) for _ in range(4)]
        for number, worker in enumerate(pool.workers):
            assert [message for one, message in ready_or_done if one == number] == [
                Ready(),
                StepsDone(epoch=0, started_ns=5, ends_ns=(), tokens={0: (7,)}, finished=(), running=False),
            ]
            for request in range(200):
                worker.send(Hold(request, (request,) * 3000, (number,), 1))
        came: dict[int, list[Any]] = {0: [], 1: []}
        for _ in range(400):
            one, message = pool.inbox.get(timeout=patience_s())
            came[one].append(message)
        for number, messages in came.items():
            assert messages == [
                StepsDone(
                    epoch=0,
                    started_ns=5,
                    ends_ns=(number,),
                    tokens={request: (request,) * 3000},
                    finished=(),
                    running=False,
                )
                for request in range(200)
            ]
    assert own_workers() == {}


def test_a_worker_that_is_killed_is_told_with_its_cause_and_once() -> None:
    with ready(pool_of("echo", 2)) as pool:
        os.kill(own_workers()[1], signal.SIGKILL)
        assert end_of(pool) == (1, Died("the worker process was ended by SIGKILL"))
        pool.workers[1].send(Hold(1, (1,), (), 1))  # is dropped
        pool.workers[0].send(StopSteps())
        assert pool.inbox.get(timeout=patience_s()) == (0, Alive())
        assert pool.inbox.empty()


def test_a_worker_that_is_stopped_is_found_by_its_silence_and_ended() -> None:
    """Within 5 s on a machine that runs the watch in time: looks are counted, not seconds."""
    with ready(pool_of("echo", 2)) as pool:
        os.kill(own_workers()[0], signal.SIGSTOP)
        cause = "nothing was heard of the worker process for 4 s: it is stopped (SIGSTOP or a debugger)"
        assert end_of(pool) == (0, Died(cause))
        wait_until(lambda: set(own_workers()) == {1}, "it was not ended")
        pool.workers[1].send(StopSteps())
        assert pool.inbox.get(timeout=patience_s()) == (1, Alive())


@pytest.mark.parametrize("how", [COMPUTES, COMPUTES_ALONE])
def test_a_worker_that_computes_for_long_is_not_silent(monkeypatch: pytest.MonkeyPatch, how: int) -> None:
    """Its heart-beats come from another thread; where that has no turn the process's CPU time tells."""
    looks: list[int] = []
    look = WorkerProcess.look

    def counted(self: WorkerProcess) -> None:
        look(self)
        looks.append(self._silent_looks)

    monkeypatch.setattr(WorkerProcess, "look", counted)
    with ready(pool_of("echo")) as pool:
        pool.workers[0].send(Forget(how))
        pool.workers[0].send(StopSteps())
        wait_until(lambda: len(looks) > 20, "nobody looks")
        assert pool.inbox.empty() and max(looks) < 16, looks


def test_a_worker_that_hangs_with_all_its_threads_is_found() -> None:
    with ready(pool_of("echo")) as pool:
        pool.workers[0].send(Forget(HANGS))
        cause = "nothing was heard of the worker process for 4 s: all its threads are blocked"
        assert end_of(pool) == (0, Died(cause))


@pytest.mark.parametrize(
    ("how", "cause"),
    [(FAILS, "ValueError: told to fail"), (EXITS, "the worker process ended with exit status 7")],
)
def test_a_worker_that_fails_says_why(how: int, cause: str, capfd: pytest.CaptureFixture[str]) -> None:
    with ready(pool_of("echo")) as pool:
        pool.workers[0].send(Forget(how))
        assert end_of(pool) == (0, Died(cause))
        wait_until(lambda: own_workers() == {}, "it goes on")
    assert pool.inbox.empty()
    assert ("told to fail" in capfd.readouterr().err) == (how == FAILS)


def test_a_worker_that_sends_what_is_no_message_is_lost() -> None:
    with pool_of("says_no_message") as pool:
        assert pool.inbox.get(timeout=patience_s()) == (0, Ready())
        _, end = end_of(pool)
        assert end.cause.startswith("the worker sent an invalid message: a frame is no message")
        wait_until(lambda: own_workers() == {}, "it goes on")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("fails", r"Worker 0 did not start \(as its model says\)"),
        ("nowhere", r"Worker 0 did not start \(AttributeError: module .* has no attribute 'nowhere'"),
    ],
)
def test_what_keeps_a_worker_from_its_start_is_said(entry: str, said: str) -> None:
    with pool_of(entry) as pool, pytest.raises(UserError, match=said):
        pool.wait_ready(patience_s())
    assert own_workers() == {}


def test_a_worker_that_ends_before_it_connects_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_BOOT", "raise SystemExit(3)")
    monkeypatch.setattr(local, "_may_be_forked", lambda _: False)
    with pool_of("echo") as pool, pytest.raises(UserError, match="ended with exit status 3"):
        pool.wait_ready(patience_s())


def test_a_worker_that_does_not_get_ready_is_waited_for_no_longer_than_told() -> None:
    """Silence is no end before a worker is ready: imports keep the interpreter's lock for seconds."""
    with pool_of("never_ready", 2) as pool:
        wait_until(lambda: all(one._channel for one in pool.workers), "they do not connect")
        with pytest.raises(UserError, match=r"Only 0 of 2 workers were ready after 0.01 s"):
            pool.wait_ready(0.01)
    assert own_workers() == {}


def who(address: dict[str, Any], secret: bytes, worker: int, epoch: int) -> str:
    """What a process learns that says it is this worker."""
    channel = dial(address, secret, {"worker": worker, "epoch": epoch})
    try:
        channel.receive()
    except ChannelClosed as error:
        return str(error)
    return "a frame"


def test_nobody_else_is_taken_for_a_worker() -> None:
    with ready(pool_of("echo")) as pool:
        address = pool._listener.address
        assert "peer closed" in who(address, pool.secret, 0, 0), "it has one already"
        assert "peer closed" in who(address, pool.secret, 0, 1), "another process was to be in this place"
        assert "peer closed" in who(address, pool.secret, 1, 0), "there is none of this number"
        with pytest.raises(ConnectionError, match="does not know the secret"):
            who(address, new_secret(), 0, 0)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(address["path"])
            with suppress(BrokenPipeError, ConnectionResetError):  # it may be refused before all is written
                stranger.sendall(bytes(range(256)) * 400)
        pool.workers[0].send(StopSteps())
        assert pool.inbox.get(timeout=patience_s()) == (0, Alive())


def test_the_secret_stands_in_no_argument_and_no_environment() -> None:
    with ready(pool_of("echo")) as pool:
        process = Path(f"/proc/{own_workers()[0]}")
        told = process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
        assert pool.secret.hex().encode() not in told and pool.secret not in told


DRIVER = f"""
import sys, time
from realexec.launchers import fork_server, local
local._may_be_forked = lambda _: sys.argv[2] == "forked"
fork_server._IMPORTED = ()
from realexec.driver.processes import WorkerPool
with WorkerPool(2, {{}}, 5, 4, entry="{WORLD}:" + sys.argv[1]) as pool:
    if sys.argv[1] == "echo":
        pool.wait_ready(1000)
    for one in pool.workers:
        while not one.process.pid:
            time.sleep(0.01)
    print("begun", flush=True)
    time.sleep(100_000)
"""


@pytest.mark.parametrize("entry", ["echo", "never_ready"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_workers_end_with_their_driver(entry: str, how: signal.Signals, forked: bool) -> None:
    with started(DRIVER, entry, "forked" if forked else "fresh") as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begun\n"
        numbers: dict[int, int] = {}
        wait_until(lambda: numbers.update(workers_of(driver.pid)) or len(numbers) == 2, "they have no names")
        driver.send_signal(how)
        driver.wait(patience_s())
        gone: Callable[[], bool] = lambda: not any(Path(f"/proc/{one}").exists() for one in numbers.values())  # noqa: E731
        began_s = time.monotonic()
        wait_until(gone, "workers outlive the driver")
        assert time.monotonic() - began_s < patience_s()


def test_closing_does_not_wait_for_what_a_worker_has_not_read() -> None:
    with ready(pool_of("echo")) as pool:
        os.kill(own_workers()[0], signal.SIGSTOP)
        for request in range(300):
            pool.workers[0].send(Hold(request, tuple(range(2000)), (), 1))
    assert own_workers() == {}
    with pytest.raises(queue.Empty):
        pool.inbox.get(block=False)
