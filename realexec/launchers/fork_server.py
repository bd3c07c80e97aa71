"""Workers forked from one process that has imported torch and transformers: the driver's side.

Those imports take a core some four seconds (`python -X importtime`), and each fresh interpreter takes them
anew. They are not forked from the driver: a child would have its connections, and what its threads lock. The
fork server (`realexec.launchers.forking`) has one thread and one connection. It is Linux's alone, whose
kernel ends forked workers with it.
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

# The first line of standard input says the rest; -P keeps modules of the current folder out until then.
_BOOT: Final = (
    "import json, sys; told = json.loads(sys.stdin.buffer.readline()); sys.path[:] = told['path']; "
    "from realexec.launchers.forking import main; main(told)"
)
# What `realexec.worker` imports once it is told of its model.
_IMPORTED: Final = (
    "realexec.worker",
    "realexec.memory_of_slot",
    "realexec.neighbours",
    "realexec.stage_work",
)
# OpenBLAS would start threads when it is imported, and who forks is to have one. Workers compute by torch.
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
_STDOUT: Final = 1
_STDERR: Final = 2
_READ_BYTES: Final = 256


class ForkedChild:
    """A worker that the fork server forks: what `LocalProcess` needs of a `subprocess.Popen`.

    The server tells its number and, when it has ended, its exit status. Any thread may call.
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
        """Its number; 0 while the server still imports."""
        self.poll()
        return self._pid

    def poll(self) -> int | None:
        """Its exit status as `subprocess` has it, None while it runs or is still to be forked."""
        with self._reading:
            while self._exit_code is None and self._read():
                pass
            return self._exit_code

    def wait(self, timeout: float = inf) -> int:
        """Returns its exit status; subprocess.TimeoutExpired where it has none by then."""
        until_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            select.select([self._told], [], [], None if left_s == inf else left_s)
        return code

    def kill(self) -> None:
        """SIGKILL. One that is still to be forked finds its standard input closed, and ends by that."""
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
        """Take what the server has told since; False when that is all so far."""
        try:
            told = os.read(self._told, _READ_BYTES)
        except BlockingIOError:
            return False
        if not told:  # the server has gone, and its children with it
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
    """Ends with the thread that makes it, and so do the workers that it has forked."""

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
            with suppress(BrokenPipeError):  # it ended at once, which its children show
                write_line(self._process.stdin, told)
        atexit.register(self.close)

    def serves(self) -> bool:
        """Whether it is there for this process."""
        return self._driver == os.getpid() and self._process.poll() is None

    def fork(self, start: Mapping[str, Any]) -> ForkedChild:
        """One more worker, told its ``start`` by its standard input. OSError when the server has gone."""
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
        with suppress(BrokenPipeError):  # it ended at once, which is seen and told
            write_line(child.stdin, {**start, **here})
        return child

    def close(self) -> None:
        """End it, and its workers."""
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
    """This thread's, for all its runs; started when it is first asked for, and anew where it has ended."""
    if _OWN.server is None or not _OWN.server.serves():
        _OWN.server = ForkServer()
    return _OWN.server


def write_line(pipe: Any, told: Mapping[str, Any]) -> None:
    """One line of JSON into a pipe without a buffer, which may take less than it is given."""
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[pipe.write(line) :]
