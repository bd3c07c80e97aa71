"""Cases that tests draw are the same everywhere, and new ones where ``make draw`` asks for them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import drawing
from tests.worlds.drawing import drawn_seeds

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("*.py"))
UNWANTED = re.compile(
    r"derandomize=|deadline=(?!None)|database=|HealthCheck"
    r"|[( .]Random\(\)|default_rng\(\)|np\.random\.(seed|rand)"
)


def cases() -> list[int]:
    """What a test draws here."""
    found: list[int] = []

    @settings(max_examples=300, derandomize=True)
    @given(st.integers())
    def note(number: int) -> None:
        found.append(number)

    note()
    return found


def test_cases_are_the_same_whatever_was_imported_before(tmp_path: Path) -> None:
    """hypothesis would take some of its numbers from the constants of these modules."""
    before = cases()
    source = tmp_path / "many_constants.py"
    source.write_text(f"NUMBERS = {[10**9 + number for number in range(500)]}\n")
    spec = importlib.util.spec_from_file_location("many_constants", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["many_constants"] = module
    try:
        spec.loader.exec_module(module)
        assert cases() == before
    finally:
        del sys.modules["many_constants"]


def test_nobody_draws_in_a_way_of_its_own() -> None:
    """Neither unseeded, nor with settings that a slow machine or a left folder could change."""
    found = {path.name: UNWANTED.search(path.read_text()) for path in FILES}
    own = {name: match[0] for name, match in found.items() if match}
    assert own.keys() == {"drawing.py", "test_drawing.py"}, (
        own,
        "settings are those of tests/worlds/drawing.py",
    )


def test_seeds_are_fixed_unless_new_ones_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "DRAWN_ANEW", None)
    assert list(drawn_seeds(range(4))) == [0, 1, 2, 3]
    found = []
    for seed in ("7", "7", "8"):
        monkeypatch.setattr(drawing, "DRAWN_ANEW", seed)
        found.append(drawn_seeds(range(4)))
    assert found[0] == found[1] != found[2] and len(set(found[0])) == 4


LOTTERY = """
from hypothesis import given, settings, strategies as st
from tests.worlds.drawing import on_drawn_seeds

@given(st.integers(0, 10**9))
@settings(max_examples=20)
def test_first(number): assert number < {limit}

@on_drawn_seeds(range(2))
def test_second(seed): assert seed > {limit}

def test_not_drawn(): assert False
"""


def drawn_anew(folder: Path, limit: int, *words: str) -> tuple[int, str]:
    """What ``make draw`` ends with and says about these three tests."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "test_lottery.py").write_text(LOTTERY.format(limit=limit))
    command = [sys.executable, "-m", "tests.draw", *words, str(folder / "test_lottery.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_failure_says_how_to_see_it_again(tmp_path: Path) -> None:
    status, told = drawn_anew(tmp_path, 10**6, "--seed", "17")
    assert status == 1 and told.startswith("draw: seed 17\n")
    (again,) = re.findall(r"again: make draw SEED=17 TESTS=\S*test_lottery.py::(\w+)", told)
    assert again == "test_first" and "test_not_drawn" not in told


def test_it_goes_on_with_new_seeds_until_the_time_is_up(tmp_path: Path) -> None:
    status, told = drawn_anew(tmp_path, 10**10, "--seed", "17", "--minutes", "0")
    assert status == 0 and told.count("draw: seed") == 1 and "the time is up" in told
