"""The fork server's process: it imports what workers need, then forks one worker per request."""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from realexec.system import prctl, signals
from realexec.worker import worker_process

_FILES: Final = 4  # descriptors of a request: the three standard ones and the pipe that reports the exit
_READ_BYTES: Final = 4096


def main(settings: dict[str, Any]) -> None:
    """Serve fork requests until the driver has ended; in a forked child, run the worker."""
    # Ctrl-C reaches the whole process group; the driver decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.let_in()
    prctl.set_name("realexec-forks")
    prctl.end_with_starting_thread()
    if os.getppid() != settings["parent"]:  # the driver died before the call above
        os._exit(1)
    for module in settings["imported"]:
        with suppress(Exception):  # a worker that imports the same module reports the error
            importlib.import_module(module)
    gc.freeze()  # the garbage collector would write to pages that all workers share
    with socket.socket(fileno=settings["requests"]) as requests:
        start = _Forks(requests).serve()
    if start is not None:
        worker_process.main(start)


class _Forks:
    """The forked children, and for each the pipe on which its PID and exit status are reported."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._own = os.getpid()
        self._tells: dict[int, int] = {}
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)

    def serve(self) -> dict[str, Any] | None:
        """Return the start parameters in each child; return None in the server once the driver has ended."""
        watched: list[Any] = [self._requests, self._woken]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._woken in ready:
                os.read(self._woken, _READ_BYTES)
                self._tell_ends()
            if self._requests in ready:
                received, files, _, _ = socket.recv_fds(self._requests, 1, _FILES)
                if not received:
                    return None
                if self._fork(files):
                    return _begun(files, self._own)

    def _fork(self, files: list[int]) -> bool:
        """Fork a child; return True in the child."""
        *standard, tells = files
        try:
            child = os.fork()
        except OSError:  # no memory, or too many processes: reported as a child that has ended
            child = -1
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (self._woken, self._wakes, tells, *self._tells.values()):
                os.close(file)
            return True
        for file in standard:
            os.close(file)
        if child < 0:
            os.close(tells)
            return False
        self._tells[child] = tells
        _tell(tells, child)
        return False

    def _tell_ends(self) -> None:
        """Report each child that has ended, before it is reaped: until then no process can reuse its PID."""
        for child in list(self._tells):
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            tells = self._tells.pop(child)
            _tell(tells, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
            os.close(tells)
            os.waitpid(child, 0)


def _tell(pipe: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the driver has closed its end of this child's pipe
        os.write(pipe, b"%d\n" % number)


def _begun(files: list[int], parent: int) -> dict[str, Any] | None:
    """In a child, read the first line of standard input, as a fresh interpreter would, and take over the
    driver's environment, folder and path. None if standard input was closed before."""
    for to, file in enumerate(files[:-1]):
        os.dup2(file, to)
        os.close(file)
    with os.fdopen(0, "rb", buffering=0, closefd=False) as lines:
        line = lines.readline()
    if not line:
        return None
    start: dict[str, Any] = json.loads(line)
    os.environ.clear()
    os.environ.update(start["environ"])
    os.chdir(start["folder"])
    sys.path[:] = start["path"]
    return {**start, "parent": parent}
