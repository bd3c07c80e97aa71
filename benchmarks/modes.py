"""Which core computes: the Python source as it is (interpreted), or native code built from it (compiled)."""

import os
import subprocess
import sys
from functools import cache

from nativecore import SWITCH, core

INTERPRETED, COMPILED = "interpreted", "compiled"
MODES = (INTERPRETED, COMPILED)
NO_COMPILED_CORE = "there is no compiled core here"


def ran() -> str:
    """Which of the two this process uses."""
    return core()


def environment(mode: str) -> dict[str, str]:
    """Environment variables of a process that uses the core ``mode``."""
    environ = {name: value for name, value in os.environ.items() if name != SWITCH}
    return environ | ({SWITCH: "1"} if mode == INTERPRETED else {})


@cache
def available() -> tuple[str, ...]:
    """The modes that run here: interpreted always, compiled where a fresh process can import it."""
    answer = subprocess.run(
        [sys.executable, "-c", "from benchmarks.modes import ran; print(ran())"],
        capture_output=True, text=True, check=True, env=environment(COMPILED),
    )  # fmt: skip
    return MODES if answer.stdout.split()[-1] == COMPILED else (INTERPRETED,)
