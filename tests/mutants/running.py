"""A mutant in a temporary copy of the tree, and which test notices it there."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.listed import Mutant

ROOT = Path(__file__).resolve().parents[2]
LIGHT = "not real and not laws and not simgrid and not ray"
MOST_S = 300.0  # of a run of tests: a mutant may never end
_NOTICED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
HANGS = "(the tests do not end)"


class MutantFault(Exception):
    """A mutant that cannot be tried: one sentence says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``noticed_by``: the first test that fails with the mutant and passes without; None: it survived."""

    mutant: Mutant
    noticed_by: str | None
    seconds: float


@contextmanager
def copied_tree() -> Iterator[Path]:
    """What git knows of this checkout, as it stands now, in a folder of its own."""
    names = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        yield root


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _lines_within(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Lines (from 0) of the functions and classes of that name."""
    lines = text.splitlines()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in ast.walk(_tree(text)) if name in text else ():
        if isinstance(node, kinds) and node.name == name:
            yield from enumerate(lines[node.lineno - 1 : node.end_lineno], node.lineno - 1)


def place_of(mutant: Mutant, root: Path) -> tuple[Path, int]:
    """The file and line (from 0) of what the mutant changes. Raises MutantFault unless it is there once."""
    found = [
        (path, number)
        for path in sorted((root / mutant.package).rglob("*.py"))
        for number, line in _lines_within(path.read_text(encoding="utf-8"), mutant.inside)
        for _ in range(line.count(mutant.old))
    ]
    if len(found) != 1:
        where = ", ".join(f"{path.relative_to(root)}:{number + 1}" for path, number in found) or "nowhere"
        raise MutantFault(
            f"mutant '{mutant.name}': it must be once in {mutant.inside} of {mutant.package} and is found "
            f"{where}: {mutant.old}"
        )
    return found[0]


@contextmanager
def applied(mutant: Mutant, root: Path) -> Iterator[Path]:
    """The copy with the mutant in it; yields the file."""
    path, number = place_of(mutant, root)
    before = path.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    lines[number] = lines[number].replace(mutant.old, mutant.new)
    _write(path, "".join(lines))
    try:
        yield path
    finally:
        _write(path, before)


def _write(path: Path, text: str) -> None:
    """With the compiled form of the file removed, which a clock of whole seconds could call current."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def first_failure(root: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails there, interpreted, whatever may be compiled; None: all pass."""
    environment = {**os.environ, "PYTHONPATH": str(root), "SERVETWIN_INTERPRETED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.unshrunk"]
    words = [sys.executable, "-m", "pytest", "-x", *plugins, "--tb=no", "-rfE", "-m", LIGHT]
    try:
        ran = subprocess.run(
            [*words, *tests], cwd=root, env=environment, capture_output=True, text=True, timeout=MOST_S
        )
    except subprocess.TimeoutExpired:
        return HANGS
    if ran.returncode == 0:
        return None
    found = _NOTICED.search(ran.stdout)
    if ran.returncode not in (1, 2) or found is None:
        raise MutantFault(f"pytest ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
    return found[1]


def tried(mutant: Mutant, root: Path, everything: bool) -> Outcome:
    """Its own tests first; with ``everything`` all light tests if those do not notice."""
    began_s = time.monotonic()
    with applied(mutant, root):
        noticed = first_failure(root, mutant.tests)
        if noticed is None and everything:
            noticed = first_failure(root, ["tests"])
    seconds = time.monotonic() - began_s
    if noticed is not None and noticed != HANGS and first_failure(root, [noticed]) is not None:
        raise MutantFault(f"{noticed} fails without a mutant too: mend it first")
    return Outcome(mutant, noticed, seconds)


def check_copy(root: Path) -> None:
    """Tests run in the copy must import the copy, whatever is installed. Raises MutantFault."""
    code = "import serving, simcore, policies; print(serving.__file__, simcore.__file__, policies.__file__)"
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "SERVETWIN_INTERPRETED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    foreign = [name for name in told if root.resolve() not in Path(name).resolve().parents]
    if foreign:
        raise MutantFault(f"tests in a copy of the tree would import {foreign[0]}")
