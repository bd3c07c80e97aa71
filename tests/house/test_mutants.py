"""Mutants: a line is found wherever it moved to, tried in a copy alone, and told by who notices."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import running
from tests.mutants.__main__ import main, write_table
from tests.mutants.listed import MUTANTS, Mutant
from tests.mutants.running import MutantFault, Outcome, applied, copied_tree, place_of, tried

HALF = Mutant("half", "toy", "half", "whole // 2", "whole", "nothing is halved", ("test_half.py",))
SOURCE = "def half(whole):\n    if whole:\n        return whole // 2\n    return 0\n"
NOTICES = """import pytest
from toy.room.parts import half

def test_nothing():
    assert half(0) == 0

@pytest.mark.parametrize("how", ["as told - x"])
def test_half(how):
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with a test; the plugin that mutants are tried with is this checkout's."""
    (tmp_path / "toy" / "room").mkdir(parents=True)
    (tmp_path / "toy" / "room" / "parts.py").write_text(SOURCE)
    (tmp_path / "test_half.py").write_text(f"{NOTICES}    assert half(4) == 2\n")
    (tmp_path / "tests").symlink_to(running.ROOT / "tests")
    return tmp_path


def test_a_mutant_is_noticed_by_the_first_test_that_fails_and_taken_out_again(tree: Path) -> None:
    outcome = tried(HALF, tree, everything=False)
    assert outcome.noticed_by == "test_half.py::test_half[as told - x]"
    assert (tree / "toy" / "room" / "parts.py").read_text() == SOURCE


def test_a_mutant_that_no_test_notices_survives(tree: Path) -> None:
    (tree / "test_half.py").write_text(f"{NOTICES}    assert half(4) > 0\n")
    assert tried(HALF, tree, everything=False).noticed_by is None


def test_a_test_that_fails_anyway_notices_nothing(tree: Path) -> None:
    (tree / "test_half.py").write_text(f"{NOTICES}    assert half(4) == 3\n")
    with pytest.raises(
        MutantFault, match=r"test_half.py::test_half\[as told - x\] fails without a mutant too"
    ):
        tried(HALF, tree, everything=False)


def test_a_line_keeps_its_indentation_and_is_found_in_another_file(tree: Path) -> None:
    with applied(HALF, tree) as path:
        assert "\n        return whole\n" in path.read_text()
    (tree / "toy" / "room" / "parts.py").rename(tree / "toy" / "moved.py")
    path, number = place_of(HALF, tree)
    assert (path.name, number) == ("moved.py", 2)


@pytest.mark.parametrize(("text", "where"), [("", "found nowhere"), (SOURCE * 2, "parts.py:3, .*parts.py:7")])
def test_a_line_that_is_gone_or_there_twice_is_told(tree: Path, text: str, where: str) -> None:
    (tree / "toy" / "room" / "parts.py").write_text(text)
    with pytest.raises(MutantFault, match=rf"'half'.*{where}.*whole // 2"):
        place_of(HALF, tree)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_line_of_each_mutant_is_in_its_package_once(mutant: Mutant) -> None:
    place_of(mutant, running.ROOT)


def test_mutants_are_enough_of_five_packages_and_each_has_tests_that_exist() -> None:
    assert len(MUTANTS) >= 40 and len({one.name for one in MUTANTS}) == len(MUTANTS)
    assert {one.package for one in MUTANTS} == {"serving", "simcore", "policies", "realexec", "servetwin"}
    for one in MUTANTS:
        assert one.old != one.new and one.tests, one.name
        assert all((running.ROOT / file).is_file() for file in one.tests), one.name


@pytest.mark.skipif(not (running.ROOT / ".git").exists(), reason="this is no checkout of git")
def test_a_copy_of_the_tree_imports_itself(tmp_path: Path) -> None:
    with copied_tree() as root:
        running.check_copy(root)
        assert (root / "serving").is_dir() and not (root / ".git").exists()
        code = "import serving; print(serving.__file__)"
        told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
        assert told.stdout.startswith(str(root.resolve()))


def test_the_table_says_who_noticed_and_what_survived(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- mutants -->\nold\n<!-- end of mutants -->\nbelow\n")
    noticed = Outcome(HALF, "tests/room/test_half.py::test_half[4]", 1.0)
    write_table(page, [noticed, Outcome(HALF, None, 2.0)])
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("below\n") and "old" not in text
    assert "1 of 2 mutants" in text and "| test_half test_half |" in text and "| **nobody** |" in text


def test_a_mutant_that_is_not_listed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
    assert "there is no mutant 'nothing'" in capsys.readouterr().err
