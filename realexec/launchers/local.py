"""Workers as processes of this machine: forked from one that has imported torch, or fresh interpreters."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from realexec.launchers.fork_server import ForkedChild, fork_server, write_line
from realexec.liveness import ProcessClock
from realexec.wire.listener import LOOPBACK

HERE: Final = "this machine"
# The first line of standard input says the rest; -P keeps modules of the current folder out until then.
_BOOT: Final = (
    "import json, sys; start = json.loads(sys.stdin.buffer.readline()); sys.path[:] = start['path']; "
    "from realexec.worker_process import main; main(start)"
)
_STOPPED: Final = "it is stopped (SIGSTOP or a debugger)"
# Those that compute by torch on a CPU. Once a process has initialised CUDA a forked one cannot use it, and an
# import may do that: on a GPU each worker is a fresh interpreter.
_FORKED_ENTRIES: Final = ("realexec.worker:serve",)
_FORKED_DEVICES: Final = ("cpu", "apart")
_WHY: Final = {"T": _STOPPED, "t": _STOPPED}
_IDLE: Final = "it waits for something that does not come"


class LocalLauncher:
    """As many as are asked for."""

    def __init__(self) -> None:
        self.one_host = True
        self.places: tuple[str, ...] = ()
        self.addresses: tuple[str, ...] = ()

    def open(self, workers: int) -> str | None:
        """There is always room."""
        self.places = (HERE,) * workers
        self.addresses = (LOOPBACK,) * workers
        return None

    def start(self, worker: int, start: Mapping[str, Any]) -> "LocalProcess":
        """A child of this process, which ends with the thread that calls."""
        return LocalProcess(worker, start, forked=_may_be_forked(start))

    def close(self) -> None:
        """Nothing was taken; what forks workers stays for the next ones."""


class LocalProcess:
    """A child of this process; the pipe that is its standard input stays open while this one lives."""

    far_clock = False

    def __init__(self, worker: int, start: Mapping[str, Any], forked: bool = False) -> None:
        here = {**start, "parent": os.getpid(), "path": sys.path}
        self._process = _forked(worker, here) if forked else _started(worker, here)
        self._clock: ProcessClock | None = None

    @property
    def pid(self) -> int:
        """Its number; 0 while it is still to be forked."""
        return self._process.pid

    def ended(self) -> str | None:
        """By its exit status."""
        code = self._process.poll()
        return None if code is None else _exit_cause(code)

    def end_within(self, seconds: float) -> str | None:
        """Waits for its exit status."""
        try:
            return _exit_cause(self._process.wait(seconds))
        except subprocess.TimeoutExpired:
            return None

    def cut_off(self) -> str | None:
        """It is on this host: its connection tells."""
        return None

    def ran(self) -> bool:
        """By the system's account."""
        clock = self._its_clock()
        return clock is None or clock.ran()

    def silence(self) -> str:
        """By the state that the system has it in."""
        clock = self._its_clock()
        return _IDLE if clock is None else _WHY.get(clock.state(), _IDLE)

    def cpu_ns(self) -> int:
        """By the system's account."""
        clock = self._its_clock()
        return 0 if clock is None else clock.cpu_ns()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """It keeps nothing that would need saving."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _its_clock(self) -> ProcessClock | None:
        """None while it is still to be forked."""
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
    """Only Linux ends forked workers with the process that forks them."""
    return sys.platform == "linux" and device in _FORKED_DEVICES


def _forked(worker: int, start: Mapping[str, Any]) -> "ForkedChild | subprocess.Popen[bytes]":
    """By the fork server; where that has just ended, a fresh interpreter."""
    try:
        return fork_server().fork(start)
    except OSError:
        return _started(worker, start)


def _started(worker: int, start: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    """A fresh interpreter."""
    words = [sys.executable, "-P", "-c", _BOOT, "realexec-worker", str(worker)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it ended at once, which is seen and told
        write_line(process.stdin, start)
    return process


def _exit_cause(exit_code: int) -> str:
    if exit_code < 0:
        return f"the worker process was ended by {signal.Signals(-exit_code).name}"
    return f"the worker process ended with exit status {exit_code}"
