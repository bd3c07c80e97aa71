"""Worker processes of this machine: forked from a process that has imported torch, or fresh interpreters."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from realexec.launchers.fork_server import ForkedChild, fork_server, write_line
from realexec.system.liveness import ProcessClock
from realexec.wire.listener import LOOPBACK

HERE: Final = "this machine"
# The first line of standard input holds the parameters; -P keeps the current folder off sys.path until then.
_BOOT: Final = (
    "import json, sys; start = json.loads(sys.stdin.buffer.readline()); sys.path[:] = start['path']; "
    "from realexec.worker.worker_process import main; main(start)"
)
_STOPPED: Final = "it is stopped (SIGSTOP or a debugger)"
# Only workers that compute with torch on a CPU are forked. A forked process cannot use CUDA if its parent has
# initialised it, and an import may do that: on a GPU each worker is a fresh interpreter.
_FORKED_ENTRIES: Final = ("realexec.worker.worker:serve",)
_FORKED_DEVICES: Final = ("cpu", "apart")
_WHY: Final = {"T": _STOPPED, "t": _STOPPED}
_IDLE: Final = "all its threads are blocked"


class LocalLauncher:
    """Starts worker processes on this machine, which takes any number of them."""

    def __init__(self) -> None:
        self.one_host = True
        self.places: tuple[str, ...] = ()
        self.addresses: tuple[str, ...] = ()

    def open(self, workers: int) -> str | None:
        """Place every worker on this machine. Always succeeds; workers use a Unix socket."""
        self.places = (HERE,) * workers
        self.addresses = (LOOPBACK,) * workers
        return None

    def start(self, worker: int, start: Mapping[str, Any]) -> "LocalProcess":
        """Start a worker process, which ends when the calling thread ends."""
        return LocalProcess(worker, start, forked=_may_be_forked(start))

    def close(self) -> None:
        """Do nothing: no places are reserved, and the fork server stays for the next workers."""


class LocalProcess:
    """A worker process on this machine. Its standard input is a pipe that this process keeps open."""

    remote_clock = False

    def __init__(self, worker: int, start: Mapping[str, Any], forked: bool = False) -> None:
        here = {**start, "parent": os.getpid(), "path": sys.path}
        self._process = _forked(worker, here) if forked else _started(worker, here)
        self._clock: ProcessClock | None = None

    @property
    def pid(self) -> int:
        """PID of the worker; 0 until it has been forked."""
        return self._process.pid

    def ended(self) -> str | None:
        """Return how the process ended, from its exit status."""
        code = self._process.poll()
        return None if code is None else _exit_cause(code)

    def end_within(self, seconds: float) -> str | None:
        """Wait for the exit status."""
        try:
            return _exit_cause(self._process.wait(seconds))
        except subprocess.TimeoutExpired:
            return None

    def cut_off(self) -> str | None:
        """Return None: on this host the connection closes when the process ends."""
        return None

    def ran(self) -> bool:
        """Return whether it ran, from the kernel's CPU accounting."""
        clock = self._its_clock()
        return clock is None or clock.ran()

    def silence(self) -> str:
        """Return a reason for the silence, from the kernel's process state."""
        clock = self._its_clock()
        return _IDLE if clock is None else _WHY.get(clock.state(), _IDLE)

    def cpu_ns(self) -> int:
        """Return the CPU time in ns, from the kernel's CPU accounting."""
        clock = self._its_clock()
        return 0 if clock is None else clock.cpu_ns()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """Send SIGKILL and wait for the exit: a worker has no state that must be saved."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _its_clock(self) -> ProcessClock | None:
        """Return the clock of the process; None until it has been forked."""
        if self._clock is None and (pid := self.pid):
            self._clock = ProcessClock(pid)
        return self._clock


def import_early(device: str) -> None:
    """Start the fork server if workers on ``device`` are forked: it imports torch while the driver does."""
    if _may_be_forked_on(device):
        fork_server()


def _may_be_forked(start: Mapping[str, Any]) -> bool:
    return start["entry"] in _FORKED_ENTRIES and _may_be_forked_on(str(start["model"].get("device", "cpu")))


def _may_be_forked_on(device: str) -> bool:
    """Whether the fork server may start it. Only Linux ends forked workers together with the fork server."""
    return sys.platform == "linux" and device in _FORKED_DEVICES


def _forked(worker: int, start: Mapping[str, Any]) -> "ForkedChild | subprocess.Popen[bytes]":
    """Fork a worker from the fork server; start a fresh interpreter if the server has just ended."""
    try:
        return fork_server().fork(start)
    except OSError:
        return _started(worker, start)


def _started(worker: int, start: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    """Start a worker as a fresh interpreter."""
    words = [sys.executable, "-P", "-c", _BOOT, "realexec-worker", str(worker)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it exited at once; `ended` reports that
        write_line(process.stdin, start)
    return process


def _exit_cause(exit_code: int) -> str:
    if exit_code < 0:
        return f"the worker process was ended by {signal.Signals(-exit_code).name}"
    return f"the worker process ended with exit status {exit_code}"
