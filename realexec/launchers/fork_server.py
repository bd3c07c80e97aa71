"""Workers forked from one process that has imported torch and transformers: the driver's side.

Those imports take a core some four seconds (`python -X importtime`), and each fresh interpreter repeats them.
Workers are not forked from the driver: a child would inherit its connections and the locks its threads hold.
The fork server (`realexec.launchers.fork_server_process`) has one thread and one connection. It runs on Linux
only, because that kernel ends the forked workers when the fork server ends.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Final

# The first line of standard input holds the parameters; -P keeps the current folder off sys.path until then.
_BOOT: Final = (
    "import json, sys; told = json.loads(sys.stdin.buffer.readline()); sys.path[:] = told['path']; "
    "from realexec.launchers.fork_server_process import main; main(told)"
)
# Modules that `realexec.worker.worker` would otherwise import once it has received its model.
_IMPORTED: Final = (
    "realexec.worker.worker",
    "realexec.worker.slot_memory",
    "realexec.worker.stage_peers",
    "realexec.worker.stage_work",
)
# Stops OpenBLAS from starting threads on import: the fork server must have only one. Workers use torch.
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
_STDOUT: Final = 1
_STDERR: Final = 2
_READ_BYTES: Final = 256


class ForkedChild:
    """A worker that the fork server forks, with the methods of `subprocess.Popen` that `LocalProcess` uses.

    The server reports its PID and, when it has ended, its exit status. Any thread may call these methods.
    """

    def __init__(self, stdin: int, told: int) -> None:
        self.stdin = os.fdopen(stdin, "wb", buffering=0)
        self._told = told
        os.set_blocking(told, False)
        self._reading = threading.Lock()
        self._line = b""
        self._pid = 0
        self._exit_code: int | None = None

    @property
    def pid(self) -> int:
        """PID of the worker; 0 while the server is still importing."""
        self.poll()
        return self._pid

    def poll(self) -> int | None:
        """Return its exit status in the format of `subprocess`; None while it runs or is not forked yet."""
        with self._reading:
            while self._exit_code is None and self._read():
                pass
            return self._exit_code

    def wait(self, timeout: float = inf) -> int:
        """Wait for its exit status; raises subprocess.TimeoutExpired if it has not ended by then."""
        until_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            select.select([self._told], [], [], None if left_s == inf else left_s)
        return code

    def kill(self) -> None:
        """Send SIGKILL. If it is not forked yet, close its standard input: it exits when it reads that."""
        if self.poll() is not None:
            return
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            return
        self.stdin.close()
        with self._reading:
            self._end(-signal.SIGKILL)

    def _read(self) -> bool:
        """Read what the server has reported since the last call; return False if there is nothing more."""
        try:
            told = os.read(self._told, _READ_BYTES)
        except BlockingIOError:
            return False
        if not told:  # the server has ended, and so have its children
            self._end(-signal.SIGKILL)
            return False
        *lines, self._line = (self._line + told).split(b"\n")
        for line in lines:
            if self._pid:
                self._end(int(line))
            else:
                self._pid = int(line)
        return True

    def _end(self, exit_code: int) -> None:
        if self._exit_code is None:
            self._exit_code = exit_code
            os.close(self._told)


class ForkServer:
    """The driver's handle of a fork server. Server and workers end with the thread that makes the handle."""

    def __init__(self) -> None:
        theirs, self._requests = socket.socketpair()
        self._driver = os.getpid()
        with theirs:
            words = [sys.executable, "-P", "-c", _BOOT, "realexec-fork-server"]
            environ, files = {**os.environ, **_ONE_THREAD}, [theirs.fileno()]
            self._process = subprocess.Popen(
                words, bufsize=0, stdin=subprocess.PIPE, pass_fds=files, env=environ
            )
            own = {"path": sys.path, "parent": self._driver}
            told = {**own, "imported": _IMPORTED, "requests": theirs.fileno()}
            with suppress(BrokenPipeError):  # it exited at once; its children then report that they ended
                write_line(self._process.stdin, told)
        atexit.register(self.close)

    def serves(self) -> bool:
        """Whether the server runs and was started by this process."""
        return self._driver == os.getpid() and self._process.poll() is None

    def fork(self, start: Mapping[str, Any]) -> ForkedChild:
        """Fork a worker, which reads ``start`` from its standard input. OSError if the server has ended."""
        here = {"environ": dict(os.environ), "folder": str(Path.cwd())}
        begins, stdin = os.pipe()
        told, tells = os.pipe()
        child = ForkedChild(stdin, told)
        try:
            socket.send_fds(self._requests, [b"f"], [begins, _STDOUT, _STDERR, tells])
        except OSError:
            child.kill()
            raise
        finally:
            os.close(begins)
            os.close(tells)
        with suppress(BrokenPipeError):  # it exited at once; `poll` reports that
            write_line(child.stdin, {**start, **here})
        return child

    def close(self) -> None:
        """End the server and its workers."""
        if self._driver != os.getpid():
            return
        self._requests.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class _OfThread(threading.local):
    server: ForkServer | None = None


_OWN: Final = _OfThread()


def fork_server() -> ForkServer:
    """Return this thread's fork server, shared by all its runs. Starts one if none is running."""
    if _OWN.server is None or not _OWN.server.serves():
        _OWN.server = ForkServer()
    return _OWN.server


def write_line(pipe: Any, told: Mapping[str, Any]) -> None:
    """Write one line of JSON to an unbuffered pipe, whose writes may be partial."""
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[pipe.write(line) :]
