"""A server's process under its keeper, as the process that started the keeper sees it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from realexec.http.server_keeper import APART, BY_SIGNAL

# The keeper's modules are found without PYTHONPATH, which the server would inherit.
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_KEEPER: Final = """import sys
sys.path.insert(0, sys.argv.pop(1))
from realexec.http.server_keeper import main
sys.exit(main())"""
_KILLED: Final = BY_SIGNAL + signal.SIGKILL


class Seen(NamedTuple):
    """``began_ns``: when the server's process began, by CLOCK_MONOTONIC of this process; None: not yet.

    ``ended``: how it ended; empty while it runs.
    """

    began_ns: int | None
    ended: str


class KeptServer:
    """``log``: the file that the server's output goes to. ``cores``: its own; none: all of the machine.

    ``apart``: the keeper is no child of this process. Ray kills the children of an actor with it, so a keeper
    that is one could not end what the server has started.
    """

    def __init__(self, command: Sequence[str], cores: Sequence[int], log: int, apart: bool = False) -> None:
        self._keeper = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _KEEPER,
                _ROOT,
                APART if apart else "",
                ",".join(map(str, cores)),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the driver, which ends its servers in order
        )
        assert self._keeper.stdout is not None
        os.set_blocking(self._keeper.stdout.fileno(), False)
        self._told = b""
        self._group: int | None = None  # the server's processes, once it has begun
        self._began_ns: int | None = None
        self._ended = ""

    def look(self) -> Seen:
        """Return what is known of it by now. Does not block."""
        self._keeper.poll()  # one that is apart has left at once
        if not self._ended and self._read():
            self._ended = how_ended(self._status())
        return Seen(self._began_ns, self._ended)

    def _read(self) -> bool:
        """Read what the keeper has written. Returns whether it has ended."""
        assert self._keeper.stdout is not None
        closed = False
        with suppress(BlockingIOError):
            while piece := os.read(self._keeper.stdout.fileno(), 4096):
                self._told += piece
            closed = True
        first = self._told.partition(b"\n")
        if self._group is None and first[1] and len(words := first[0].split()) > 1:
            self._group, self._began_ns = int(words[0]), int(words[1])
        return closed

    def _status(self) -> int:
        """The server's exit status, from the keeper's last line or, if it wrote none, from its own end."""
        own = self._keeper.wait()  # at once: its end has closed the pipe
        last = self._told.split(b"\n")[-2:-1]
        if last and len(last[0].split()) == 1:
            return int(last[0])
        if own > 0:
            return own
        if self._group is not None:  # the keeper was killed, and ended nothing
            with suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)
        return BY_SIGNAL - own if own < 0 else _KILLED

    def tell(self, what: bytes) -> None:
        """Tell the keeper TERMINATE or KILL."""
        assert self._keeper.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            self._keeper.stdin.write(what)
            self._keeper.stdin.flush()

    def close(self) -> None:
        """Close the pipes of an ended process."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


def how_ended(status: int) -> str:
    """Return in words what an exit status says, as shells have it: 128 and a signal's number."""
    if status > BY_SIGNAL:
        return f"its process was ended by {signal.Signals(status - BY_SIGNAL).name}"
    return f"its process ended with exit status {status}"
