"""Whether a package that is installed can be imported at all: tried in a process that may end by it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

# Libraries of a GPU or an adapter may take long to load on a busy machine; one that hangs is as good as none.
_PATIENCE_S: Final = 120.0
# The last line says what was raised; what libraries print on their way is before it.
_SCRIPT: Final = """
import importlib, json, sys
path, modules = json.loads(sys.argv[1])
if path is not None:
    sys.path[:] = path
try:
    for module in modules:
        importlib.import_module(module)
except BaseException as error:
    print("\\n" + json.dumps(f"{type(error).__name__}: {error}"))
else:
    print("\\nnull")
"""


def fault_of_import(modules: Sequence[str], interpreter: Path | None = None) -> str | None:
    """What goes wrong when these are imported, None where nothing does.

    By this interpreter with its paths, or by another one with its own. Asked once in a process.
    """
    own = interpreter is None
    path = json.dumps([sys.path if own else None, list(modules)])
    return _tried(sys.executable if own else str(interpreter), path)


def first_line(error: BaseException | str) -> str:
    """Of what was raised; libraries add pages to it."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text.strip().partition("\n")[0]


@cache
def _tried(interpreter: str, words: str) -> str | None:
    command = [interpreter, "-c", _SCRIPT, words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return first_line(error)
    if done.returncode:
        return f"the process that imported it ended with status {done.returncode}"
    told: str | None = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    return None if told is None else first_line(told)
