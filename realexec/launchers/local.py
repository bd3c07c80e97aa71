"""Workers as processes of this machine, each a fresh interpreter."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from realexec.liveness import ProcessClock
from realexec.wire.listener import LOOPBACK

HERE: Final = "this machine"
# The first line of standard input says the rest; -P keeps modules of the current folder out until then.
_BOOT: Final = (
    "import json, sys; start = json.loads(sys.stdin.buffer.readline()); sys.path[:] = start['path']; "
    "from realexec.worker_process import main; main(start)"
)
_STOPPED: Final = "it is stopped (SIGSTOP or a debugger)"
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
        return LocalProcess(worker, start)

    def close(self) -> None:
        """Nothing was taken."""


class LocalProcess:
    """A child of this process; the pipe that is its standard input stays open while this one lives."""

    far_clock = False

    def __init__(self, worker: int, start: Mapping[str, Any]) -> None:
        self._process = _started(worker, {**start, "parent": os.getpid(), "path": sys.path})
        self.pid = self._process.pid
        self._clock = ProcessClock(self.pid)

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
        return self._clock.ran()

    def silence(self) -> str:
        """By the state that the system has it in."""
        return _WHY.get(self._clock.state(), _IDLE)

    def cpu_ns(self) -> int:
        """By the system's account."""
        return self._clock.cpu_ns()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """It keeps nothing that would need saving."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def _started(worker: int, start: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    """A fresh interpreter: a forked child would share torch's threads and this process's connections."""
    words = [sys.executable, "-P", "-c", _BOOT, "realexec-worker", str(worker)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    line = json.dumps(start).encode() + b"\n"
    try:
        while line:
            line = line[process.stdin.write(line) :]
    except BrokenPipeError:
        pass  # it ended at once, which is seen and told
    return process


def _exit_cause(exit_code: int) -> str:
    if exit_code < 0:
        return f"the worker process was ended by {signal.Signals(-exit_code).name}"
    return f"the worker process ended with exit status {exit_code}"
