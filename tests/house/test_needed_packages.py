"""Commands of the tests say which package they lack."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("module", "package"),
    [("tests.swarm", "hypothesis"), ("tests.draw", "hypothesis"), ("tests.draw", "pytest")],
)
def test_missing_package_is_named(module: str, package: str) -> None:
    without = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv = [{module!r}, '--help']; "
    code = without + f"runpy.run_module({module!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=patience_s()
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"python -m {module} needs {package}" in line and f"pip install {package}" in line
