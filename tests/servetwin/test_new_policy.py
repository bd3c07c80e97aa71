"""Policies of one's own: every stub works, and the page that shows one is run."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.config.policy.new_policy import new_policy
from tests.worlds.doc_commands import of_page
from tests.worlds.user_policies import here

__all__ = ["here"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "WRITE_A_POLICY.md"
GROUPS = ("dispatch", "admission", "batcher", "scaler", "provision", "live", "migration")


@pytest.mark.parametrize("group", GROUPS)
def test_every_stub_decides_a_run_and_replays(
    group: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = new_policy(group, f"Own{group.capitalize()}", here)
    words = [*made.words, "uncertainty=off"]
    assert cli.run(["simulate", *words, "journal=true", "out=run"]) == 0
    assert cli.run(["replay", "run", made.words[-1]]) == 0
    assert ", 0 differ" in capsys.readouterr().out
    assert f"own_{group}:Own{group.capitalize()}" in (here / "run" / "config.yaml").read_text()


def test_the_test_that_is_written_passes(here: Path) -> None:
    assert cli.run(["new-policy", "dispatch", "MyPolicy"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_my_policy.py"],
        capture_output=True,
        text=True,
        cwd=here,
        env={"PYTHONPATH": f"{ROOT}:{here}", "PATH": ""},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["dispach", "Mine"],
            "there is no stub for dispach: write servetwin new-policy with one of dispatch",
        ),
        (["dispatch", "mine"], "mine is no name of a class"),
        (["dispatch", "Json"], "would hide Python's own json"),
        (["dispatch"], "takes a group and a name"),
    ],
)
def test_wrong_words_are_refused(
    words: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["new-policy", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(here.glob("*.py"))


def test_nothing_is_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "test_mine.py").write_text("mine")
    assert cli.run(["new-policy", "dispatch", "Mine"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert not (here / "mine.py").exists()


def test_both_files_are_written_or_none(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = Path.write_text

    def full(self: Path, data: str, *rest: Any, **more: Any) -> int:
        if "def test_" in data:
            raise OSError(28, "No space left on device")
        return write(self, data, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert cli.run(["new-policy", "dispatch", "Mine"]) == 2
    assert "No space left" in capsys.readouterr().err and list(here.iterdir()) == []
    (here / "mine.py").symlink_to(here / "nowhere")
    assert cli.run(["new-policy", "dispatch", "Mine"]) == 2
    assert "is there already" in capsys.readouterr().err


def page_commands() -> list[tuple[str, ...]]:
    return [one.words for one in of_page(PAGE)]


def with_the_pages_policy(folder: Path) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    assert len(code[1].splitlines()) <= 40
    (folder / "my_dispatch.py").write_text(code[1])


def test_the_page_runs_in_simulation_and_replay(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_the_pages_policy(here)
    run = [words for words in page_commands() if words[0] == "servetwin" and "out/mine_real" not in words]
    verbs = [words[1] for words in run]
    assert verbs == ["new-policy", "simulate", "replay", "story", "sweep", "sweep"]
    for words in run[1:]:
        assert cli.run([*words[1:], *(["processes=1"] if words[1] == "sweep" else [])]) == 0
    shown = capsys.readouterr().out
    assert ", 0 differ" in shown
    assert "against system/dispatch=least_outstanding, the same seeds" in shown


@pytest.mark.real
def test_the_page_runs_on_real_workers_and_their_journal_replays(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_the_pages_policy(here)
    real = [words for words in page_commands() if "out/mine_real" in " ".join(words)]
    assert realexec_cli.run(real[0][1:]) == 0
    assert cli.run(real[1][1:]) == 0
    assert ", 0 differ" in capsys.readouterr().out
