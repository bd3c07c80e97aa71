"""Python processes that tests start, and how long to wait for them on this machine, as busy as it is now."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIGHT = "import servetwin.cli.main, servetwin.config.compose.compose"
REAL = "import torch, transformers.models.llama.modeling_llama"


@cache
def start_up_s(code: str = LIGHT) -> float:
    """What a process takes here that only imports this."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return time.monotonic() - began_s


def patience_s(code: str = LIGHT) -> float:
    """Only what hangs takes as long: fifty such starts, and a minute at least."""
    return max(60.0, 50 * start_up_s(code))


def wait_until(happened: Any, what: str, code: str = LIGHT) -> None:
    """Looks again and again; ``what`` is said when it has not happened after all that patience."""
    deadline_s = time.monotonic() + patience_s(code)
    while not happened():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def default_signals() -> None:
    """For a new process: Ctrl-C and the like end it, also where the parent of the tests ignores them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _own_path() -> list[str]:
    """Folders with packages that were named when the tests were started."""
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


@contextmanager
def started(
    code: str, *words: str, inside: Sequence[str] = (), **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """``python -c code words`` with pipes, ended with the test that started it.

    ``inside``: what the command begins with, of a program that becomes the one it is told to start.
    """
    given: dict[str, Any] = {
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_own_path()])},
        "text": True, "preexec_fn": default_signals, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
    }  # fmt: skip
    with subprocess.Popen([*inside, sys.executable, "-c", code, *words], **(given | options)) as running:
        try:
            yield running
        finally:
            running.kill()
