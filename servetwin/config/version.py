"""The version of the code that made a result."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_HEAD: Final = "# branch.oid "  # "Porcelain Format Version 2" in git-status(1)


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
        said = _git(root, "status --porcelain=v2 --branch --no-ahead-behind --untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    lines = said.splitlines()
    head = next(line.removeprefix(_HEAD) for line in lines if line.startswith(_HEAD))
    if head == "(initial)":  # nothing is committed yet
        return None
    return head + ("" if all(line.startswith("# ") for line in lines) else "+changes")


def _git(root: Path, command: str) -> str:
    words = ["git", *command.split()]
    result = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
