"""The version of the code that made a result."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def code_version() -> dict[str, str | None]:
    """Return the distribution's version and, in a checkout, the commit ('+changes' if it was edited)."""
    try:
        number = version("servetwin")
    except PackageNotFoundError:
        number = "unknown"
    return {"version": number, "commit": _commit(Path(__file__).resolve().parents[2])}


def _commit(root: Path) -> str | None:
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changes = "+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else ""
    except (OSError, subprocess.SubprocessError):
        return None
    return head + changes


def _git(root: Path, *words: str) -> str:
    result = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
