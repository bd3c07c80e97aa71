"""What a fresh interpreter has loaded after some code."""

import subprocess
import sys
from pathlib import Path

from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]


def modules_after(code: str) -> set[str]:
    """``sys.modules`` after a fresh interpreter has run the code."""
    code += "\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s(),
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def loaded_after(code: str) -> set[str]:
    """Their top-level packages."""
    return {name.partition(".")[0] for name in modules_after(code)}
