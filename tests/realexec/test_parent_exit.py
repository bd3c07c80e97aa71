"""A worker process ends with the process that started it, also one that was killed."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

from realexec.system.parent_exit import end_with_parent
from tests.worlds.processes import patience_s, started

FOR_EVER_S = 100_000


def worker(parent: int, deep: bool) -> None:
    """Ends by itself at no time that a test waits for."""
    end_with_parent(parent, lifeline=0)
    print("begun", os.getpid(), flush=True)
    if deep:
        ctypes.PyDLL(None).sleep(FOR_EVER_S)  # keeps the interpreter's lock, as long imports do
    time.sleep(FOR_EVER_S)


def parent(deep: bool) -> None:
    """Starts a worker that has this process's standard output too, and waits."""
    code = f"from tests.realexec.test_parent_exit import worker; worker({os.getpid()}, {deep})"
    subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    time.sleep(FOR_EVER_S)


@pytest.mark.parametrize("deep", [False, True])
def test_a_worker_ends_with_a_parent_that_was_killed(deep: bool) -> None:
    if deep and sys.platform != "linux":
        pytest.skip("only Linux ends a process without its help")
    code = f"from tests.realexec.test_parent_exit import parent\nif __name__ == '__main__': parent({deep})"
    with started(code) as running:
        assert running.stdout is not None
        begun, number = running.stdout.readline().split()
        try:
            assert begun == "begun"
            running.send_signal(signal.SIGKILL)
            out, _ = running.communicate(timeout=patience_s())  # ends when nobody has its output any more
            assert out == ""
        except BaseException:
            os.kill(int(number), signal.SIGKILL)
            raise
