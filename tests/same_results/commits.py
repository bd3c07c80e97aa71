"""Records made elsewhere: in a process with another environment, or at another commit."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.same_results.recording import ROOT, RunFailed

HERE = Path(__file__).resolve().parent
INTERPRETED_VARIABLE = "SERVETWIN_INTERPRETED"


def record_in(root: Path, path: Path, names: Sequence[str], environment: Mapping[str, str | None]) -> None:
    """Let the checkout at ``root`` record to ``path``, by its own list. None takes a variable away."""
    given = {**os.environ, "PYTHONPATH": str(root), **environment}
    known = {name: value for name, value in given.items() if value is not None}
    words = [sys.executable, "-m", "tests.same_results", "record", str(path)]
    only = ["--only", *names] if names else []
    if subprocess.run([*words, *only], cwd=root, env=known, stdout=sys.stderr).returncode:
        raise RunFailed(f"nothing was recorded in {root}")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """That commit in a temporary worktree; it lends this script to a commit that has none yet."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "before"
        made = _git("worktree", "add", "--quiet", "--detach", str(root), commit)
        if made.returncode:
            raise RunFailed(f"{commit} cannot be checked out: {made.stderr.strip()}")
        try:
            if not (root / "tests" / HERE.name).exists():
                shutil.copytree(HERE, root / "tests" / HERE.name)
            yield root
        finally:
            _git("worktree", "remove", "--force", str(root))


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
