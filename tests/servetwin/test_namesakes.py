"""A user's policies.py, or a package of his, beside the command: one sentence in place of a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]


def put(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


# This checkout at the end of the path, as an installed package is, without the finder of an editable install.
START = f"""import sys
sys.path.append({str(ROOT)!r})
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
import servetwin
"""


def ran(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience_s())


MAIN = "from servetwin.cli.main import main; main()"


@pytest.mark.parametrize("name", ["policies.py", "serving/__init__.py", "traces.py"])
def test_a_command_names_it(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name)
    done = ran(tmp_path, MAIN, "--version")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"servetwin: {path} ") and done.stderr.count("\n") == 1


def test_a_script_is_told_by_its_import(tmp_path: Path) -> None:
    path = put(tmp_path, "policies.py")
    done = ran(tmp_path, "servetwin.simulate")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"ImportError: {path} ")


@pytest.mark.parametrize("name", ["traces/notes.txt", "my_policies.py"])
def test_a_plain_folder_or_another_name_is_no_namesake(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    done = ran(tmp_path, MAIN, "--version")
    assert done.returncode == 0 and done.stdout.startswith("servetwin 1.0.0")
