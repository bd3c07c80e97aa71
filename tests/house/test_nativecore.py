"""The compiled core is used when it was made from these sources, and never otherwise."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

import nativecore
from nativecore.build import _with_imports
from nativecore.modules import INTERPRETED, compiled_modules
from servetwin.report.table import print_summary
from simcore.pipeline.circuits import later
from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]
compiled_only = pytest.mark.skipif(nativecore.core() != "compiled", reason="the core is interpreted here")
ASK = "import nativecore; print(nativecore.core(), nativecore.why_interpreted(), sep=': ')"


def asked(root: Path, code: str = ASK, **environment: str) -> str:
    """What a fresh interpreter says that imports the packages below ``root``."""
    kept = {name: value for name, value in os.environ.items() if name != nativecore.SWITCH}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"],
        cwd=root, env=kept | environment, capture_output=True, text=True, check=True, timeout=patience_s(),
    )  # fmt: skip
    return done.stdout.strip()


def copied(to: Path, *packages: str) -> Path:
    for package in ("nativecore", *packages):
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))
    return to


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A tree with the module alone, nothing built."""
    (tmp_path / "nativecore").mkdir()
    shutil.copy(ROOT / "nativecore" / "__init__.py", tmp_path / "nativecore")
    return tmp_path


def built(root: Path, interpreter: str, sources: dict[str, str]) -> None:
    """As ``make fast`` leaves it, but for the native files."""
    (root / "nativecore" / "lib").mkdir(exist_ok=True)
    record = {"interpreter": interpreter, "sources": sources, "modules": {}}
    (root / "nativecore" / "lib" / nativecore.BUILT_NAME).write_text(json.dumps(record))


def test_without_a_build_it_is_interpreted(bare: Path) -> None:
    assert asked(bare) == "interpreted: it is not compiled"


def test_a_build_of_another_interpreter_is_left_alone(bare: Path) -> None:
    built(bare, ".cpython-27-other.so", {})
    assert asked(bare).startswith("interpreted: it was compiled for .cpython-27-other.so, and this is .c")


@pytest.mark.parametrize("change", [lambda file: file.write_text("a = 2\n"), Path.unlink])
def test_a_build_of_other_sources_is_left_alone(bare: Path, change: Callable[[Path], object]) -> None:
    (bare / "some.py").write_text("a = 1\n")
    built(bare, nativecore.interpreter(), {"some.py": nativecore.hash_of(bare / "some.py")})
    assert "cannot be loaded" in asked(bare), "the hash is right: only the library is missing here"
    change(bare / "some.py")
    assert asked(bare) == "interpreted: some.py has changed since it was compiled"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"interpreter": 1, "sources": 2}',
        '{"interpreter": "", "sources": {}, "modules": ["a"]}',
        "\0",
    ],
)
def test_a_damaged_record_is_no_build(bare: Path, text: str) -> None:
    built(bare, "", {})
    (bare / "nativecore" / "lib" / nativecore.BUILT_NAME).write_text(text)
    assert asked(bare).startswith("interpreted: ")


@pytest.mark.parametrize("why", ["", "it is not compiled", "some.py has changed since it was compiled"])
def test_the_console_tells_of_native_code_that_is_out_of_date(why: str) -> None:
    console = Console(file=StringIO(), width=200)
    print_summary({"sim": {"core": "interpreted", "why_interpreted": why}}, console)
    assert ("make fast" in console.file.getvalue()) == why.startswith("some.py")  # type: ignore[attr-defined]


def test_every_module_of_the_packages_is_compiled_or_has_a_reason() -> None:
    listed = {*compiled_modules(), *INTERPRETED}
    for package in ("serving", "simcore"):
        found = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert {name for name in found if not name.endswith("__init__.py")} <= listed
    assert all((ROOT / name).is_file() for name in listed)
    assert not set(compiled_modules()) & set(INTERPRETED)


def test_the_page_lists_what_stays_interpreted_and_why() -> None:
    text = (ROOT / "docs" / "contributing" / "lab" / "COMPILED.md").read_text(encoding="utf-8")
    for reason in set(INTERPRETED.values()):
        names = [f"`{name}`" for name, why in INTERPRETED.items() if why == reason]
        assert f"| {', '.join(names)} | {reason.replace('``', '`')} |" in text


@compiled_only
@given(*[st.integers(0, 70).flatmap(lambda bits: st.integers(-(1 << bits), 1 << bits))] * 3)
@example(1 << 31, -(1 << 31), 0)
@example(-1, -1 << 62, 1)
@example(1 << 32, 1 << 30, 1 << 62)
def test_products_are_exact_around_the_ends_of_machine_words(growth: int, rounds: int, curve: int) -> None:
    """``later`` is compiled; this is not."""
    exact = growth * rounds + curve * (rounds * (rounds + 1) // 2)
    assert later(5, growth, rounds, curve) == 5 + exact


def test_what_native_code_imports_is_part_of_its_hashes() -> None:
    sources = _with_imports(compiled_modules(), ROOT)
    some = {"serving/engine/engine.py", "serving/vocabulary/fact.py", "hwmodels/fabric/fabric.py"}
    assert some <= set(sources)
    assert "servetwin/cli/main.py" not in sources


@compiled_only
def test_native_modules_are_those_listed() -> None:
    names = [name.removesuffix(".py").replace("/", ".") for name in compiled_modules()]
    code = f"""from importlib import import_module as found
print([name for name in {names} if not found(name).__file__.endswith('so')])"""
    assert asked(ROOT, code) == "[]"


@compiled_only
def test_the_switch_turns_native_code_off() -> None:
    code = f"{ASK}; import serving.engine.engine; print(serving.engine.engine.__file__.rpartition('.')[2])"
    assert asked(ROOT, code, SERVETWIN_INTERPRETED="1") == "interpreted: SERVETWIN_INTERPRETED is set\npy"
    assert asked(ROOT, code) == "compiled: \nso"


@compiled_only
def test_an_edit_is_never_hidden_by_native_code(tmp_path: Path) -> None:
    root = copied(tmp_path, "serving", "simcore", "hwmodels", "policies")
    units = "import serving.vocabulary.units; print(serving.vocabulary.units.NS_PER_S)"
    assert asked(root, f"{ASK}; {units}") == "compiled: \n1000000000"
    text = (root / "serving" / "vocabulary" / "units.py").read_text()
    (root / "serving" / "vocabulary" / "units.py").write_text(text.replace("1_000_000_000", "7"))
    assert asked(root, f"{ASK}; {units}") == (
        "interpreted: serving/vocabulary/units.py has changed since it was compiled\n7"
    )


INTERRUPTED = """
import signal
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import StepRows
from tests.worlds.toy_profile import toy_profile
rows = StepRows(OpTableStepModel(toy_profile()))
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(3000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        while True:
            rows.decode_cost(1, 150)
    except KeyboardInterrupt:
        pass
print("raised each time")
"""


@compiled_only
def test_a_signal_in_a_multiplication_raises_and_does_not_end_the_process() -> None:
    assert asked(ROOT, INTERRUPTED) == "raised each time"
