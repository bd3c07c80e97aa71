"""Workers forked from the command's own process, which has imported torch.

That takes an emulated processor minutes, and the fork server would import it once more.
"""

import json
import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import inf
from typing import Any
from unittest.mock import patch

from realexec.launchers import local
from realexec.worker.worker_process import main

LOOK_S = 0.02


class ForkedWorkers:
    """So many processes, each asleep until a worker is to be started.

    Make it while this process has one thread: what another one locks at a fork stays locked in the child.
    """

    def __init__(self, workers: int) -> None:
        self._forked = [_Forked() for _ in range(workers)]

    def in_use(self) -> AbstractContextManager[Any]:
        """Within it this machine's launcher takes them, and has nothing forked."""
        return patch.multiple(local, _started=self._start, _forked=self._start)

    def _start(self, worker: int, start: Mapping[str, Any]) -> "_Forked":
        forked = self._forked[worker]
        forked.stdin.write(json.dumps(start).encode() + b"\n")
        return forked


class _Forked:
    """What the launcher asks of a subprocess.Popen."""

    def __init__(self) -> None:
        theirs, ours = os.pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_wait_for_start, args=(theirs, ours), daemon=True
        )
        self._process.start()
        os.close(theirs)
        self._asking = threading.Lock()
        self.stdin = os.fdopen(ours, "wb", buffering=0)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        with self._asking:  # of two threads that ask at once one would be told that there is no such child
            return self._process.exitcode

    def wait(self, timeout: float = inf) -> int:
        until_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            time.sleep(LOOK_S)
        return code

    def kill(self) -> None:
        self._process.kill()


def _wait_for_start(stdin: int, other_end: int) -> None:
    """As a fresh interpreter would: the first line of standard input says the rest."""
    os.close(other_end)
    os.dup2(stdin, 0)
    with os.fdopen(0, "rb", buffering=0, closefd=False) as lines:
        line = lines.readline()
    if line:
        main(json.loads(line))
