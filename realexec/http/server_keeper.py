"""The process between the driver and a server that it started: it leaves nothing of the server behind.

Its arguments are ``apart`` (it leaves its parent) or nothing, the cores (with commas, or empty) and the
words of the command. Its standard error is the log. A server such as vLLM starts processes of its own, which
would outlive it and the driver. The keeper adopts them all. Its standard input is a pipe from the driver:
``t`` asks the server to end (SIGTERM), ``k`` or the pipe's end (the driver is gone, however it died) kills
everything. To its standard output it writes the server's process id and when it began, by CLOCK_MONOTONIC,
which all processes of a machine share; at the end, on a line of its own, its exit status, which is the
server's, 128 and the signal's number if a signal ended it.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from realexec.system import prctl

TERMINATE: Final = b"t"
KILL: Final = b"k"
APART: Final = "apart"
BY_SIGNAL: Final = 128
_NO_COMMAND: Final = 127  # as shells have it
_LOOK_S: Final = 0.02


def main() -> int:
    """Run until the server and all of its processes have ended; returns the exit status."""
    apart, cores, *command = sys.argv[1:]
    if apart and os.fork():
        os._exit(0)
    status = _served(cores, command)
    _say(str(status))
    return status


def _say(line: str) -> None:
    with suppress(OSError):  # the driver is gone
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _served(cores: str, command: list[str]) -> int:
    prctl.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    try:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=_prepared,  # single-threaded here, so it is safe
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return _NO_COMMAND
    _say(f"{server.pid} {time.monotonic_ns()}")
    status = _watched(server.pid, wake)
    _kill_all(server.pid)
    return status


def _prepared() -> None:
    prctl.end_with_starting_thread()  # if the keeper itself is killed
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _watched(server: int, wake: int) -> int:
    """Do as the driver says until the server has ended; returns its status."""
    driver = sys.stdin.fileno()
    while (status := _reaped(server)) is None:
        ready, _, _ = select.select([driver, wake], [], [])
        told = os.read(driver, 4096) if driver in ready else None
        killed = wake in ready and signal.SIGTERM in os.read(wake, 4096)
        if killed or told == b"" or KILL in (told or b""):
            _kill_all(server)
            return BY_SIGNAL + signal.SIGKILL
        if told and TERMINATE in told:
            _signal_group(server, signal.SIGTERM)
    return status


def _reaped(server: int) -> int | None:
    """Reap what has ended; returns the server's status once it has."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == server:
                code = os.waitstatus_to_exitcode(found[1])
                return code if code >= 0 else BY_SIGNAL - code
    return None


def _signal_group(server: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server, number)


def _kill_all(server: int) -> None:
    """Kill the server's group and every descendant, until none is left."""
    _signal_group(server, signal.SIGKILL)
    while True:
        for child in _descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_LOOK_S)


def _descendants(of: int) -> set[int]:
    """Processes that descend from this one, by /proc; none on other systems."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    while new := {child for child, parent in parents.items() if parent in found | {of}} - found:
        found |= new
    return found
