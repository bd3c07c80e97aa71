"""``python -m benchmarks.NAME --help`` prints what it does; a word it does not know is a sentence."""

import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
ROOT = Path(__file__).resolve().parents[2]
PATHS = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__main__.py")]
COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in PATHS
    if "__main__" in path.read_text(encoding="utf-8")
)


def status(monkeypatch: pytest.MonkeyPatch, module: str, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    return ended.value.code


def test_the_commands_are_found() -> None:
    assert {"benchmarks.speed", "benchmarks.traces", "benchmarks.peers", "benchmarks.agreement"} <= {
        *COMMANDS
    }


@pytest.mark.parametrize("module", COMMANDS)
@pytest.mark.parametrize("words", [("--help",), ("-h",), ("x", "--help")])
def test_help_is_the_modules_docstring(
    module: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, module, *words) == 0
    printed = capsys.readouterr()
    assert f"python -m {module}" in printed.out and printed.err == ""


@pytest.mark.parametrize(
    ("module", "word"),
    [
        (module, word)
        for module in COMMANDS
        for word in ("--no-such-option", "-3", "²")
        if (module, word) != ("benchmarks.sharegpt_300", "²")  # it takes any folder
    ],
)
def test_a_word_it_does_not_know_is_refused_in_a_sentence(
    module: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, module, word) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"{module}: ") and word in line
