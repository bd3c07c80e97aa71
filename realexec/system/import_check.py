"""Test whether an installed package can be imported, in a separate process that the import may crash."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

# GPU or adapter libraries may load slowly on a busy machine; an import that hangs counts as failed.
_PATIENCE_S: Final = 120.0
# The last line of output is the exception; libraries may print before it.
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
    """Describe what fails when these modules are imported; None if the import works.

    Uses this interpreter with its paths, or another one with its own. The result is cached for the process.
    """
    own = interpreter is None
    path = json.dumps([sys.path if own else None, list(modules)])
    return _tried(sys.executable if own else str(interpreter), path)


def first_line(error: BaseException | str) -> str:
    """The first line of an error message; libraries append pages of text."""
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
