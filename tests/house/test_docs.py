"""What the documents name exists: files, functions, tests and links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))


def over_pages(test):  # type: ignore[no-untyped-def]
    return pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())(test)


@over_pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{target} does not exist"


@over_pages
def test_tests_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`(test_\w+)`", page.read_text()):
        assert f"def {name}(" in TESTS, f"there is no {name}"


def test_the_tree_has_every_room_and_no_other() -> None:
    """Folders of the first code block behind "Where is what": indented ones belong to the one above."""
    text = (ROOT / "docs" / "contributing" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    told, package = set[str](), ""
    for line in text.split("## Where is what")[1].split("```")[1].splitlines():
        names = re.findall(r"([a-z_]+)/", line[:20])
        if names and not line.startswith(" "):
            package = names[0]
            told.add(package)
        elif names:
            told |= {f"{package}/{name}" for name in names}
    products = {name.split("/")[0] for name in told}
    there = {
        path.parent.relative_to(ROOT).as_posix()
        for name in products
        for path in ROOT.glob(f"{name}/**/__init__.py")
        if len(path.relative_to(ROOT).parts) <= 3  # folders inside a room stand in its line
    }
    assert told == there


@over_pages
def test_code_that_is_named_exists(page: Path) -> None:
    """``path/file.py`` and ``path/file.py:Class.method``, in backquotes."""
    for file, name in re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", page.read_text()):
        candidates = [ROOT / file, *ROOT.glob(f"*/{file}")] if "/" not in file else [ROOT / file]
        found = [path for path in candidates if path.is_file()]
        if not found and "my_" in file:
            continue  # a file the reader is to write
        assert found, f"{file} does not exist"
        for part in filter(None, name.split(".")):
            assert re.search(rf"\b{re.escape(part)}\b", found[0].read_text()), f"{file} has no {part}"
