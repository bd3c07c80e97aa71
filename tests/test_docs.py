"""What the documents name exists: files, functions, tests and links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))


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
