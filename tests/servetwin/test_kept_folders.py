"""A result folder that an earlier version wrote (tests/data/kept_run) is read by every command."""

import shutil
from pathlib import Path

import pytest

import servetwin as st
from servetwin.cli import main as cli

KEPT = Path(__file__).resolve().parents[1] / "data" / "kept_run"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def test_its_journal_replays(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["replay", str(kept)]) == 0
    assert "0 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["story", "DIR", "request=1"],
        ["story", "DIR", "instance=0"],
        ["timeline", "DIR", "out=OUT"],
        ["compare", "DIR", "DIR"],
        ["export", "DIR", "to=aiperf", "out=OUT"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_commands_read_it(words: list[str], kept: Path, tmp_path: Path) -> None:
    places = {"DIR": str(kept), "OUT": str(tmp_path / "written")}
    given = [
        word.replace("OUT", places["OUT"]) if "OUT" in word else places.get(word, word) for word in words
    ]
    assert cli.run(given) == 0


def test_it_opens_in_python(kept: Path) -> None:
    run = st.read(kept)
    assert len(run.requests) == run.summary["requests"]["finished"] == 20


def test_its_configuration_runs_again(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    assert cli.run(["simulate", f"config={kept}", f"out={out}"]) == 0
    assert st.read(out).requests["e2e_ms"].tolist() == st.read(kept).requests["e2e_ms"].tolist()
