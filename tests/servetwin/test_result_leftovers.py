"""What runs that died left behind goes with the next run; what anybody else put there stays."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servetwin.results import result_folder
from servetwin.results.known_files import MARKER, write_marker
from servetwin.results.result_folder import ResultFolder
from servetwin.results.unfinished import lock_folder, replaced_name
from serving.vocabulary.errors import UserError
from tests.worlds.result_folders import names, refusal, write_result

ROOT = Path(__file__).resolve().parents[2]
BEGUN = """
import sys
from servetwin.results.result_folder import ResultFolder
with ResultFolder(sys.argv[1], overwrite=False) as folder:
    (folder.path / "journal").write_text("begun")
    print(folder.path, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_run(target: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that has begun to write into ``target``, and its folder."""
    words = [sys.executable, "-c", BEGUN, str(target)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().rstrip("\n"))
        finally:
            process.kill()


def test_a_killed_run_leaves_nothing_once_another_has_run(tmp_path: Path) -> None:
    with another_run(tmp_path / "run") as (process, unfinished):
        write_result(tmp_path / "other")
        assert (unfinished / "journal").read_text() == "begun", "its run still goes on"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert unfinished.exists(), "nobody could put it away"
        write_result(tmp_path / "run")
    assert names(tmp_path) == {"run", "other"}


def test_a_run_of_this_process_keeps_its_folder(tmp_path: Path) -> None:
    with ResultFolder(tmp_path / "one", overwrite=False) as one:
        write_result(tmp_path / "other")
        (one.path / "summary.json").write_text("{}")
        one.commit()
    assert names(tmp_path) == {"one", "other"}


def test_a_folder_that_only_looks_like_a_leftover_stays(tmp_path: Path) -> None:
    kept = {".servetwin-unfinished-mine", ".servetwin-unfinished-0123456789ab"}
    (tmp_path / ".servetwin-unfinished-mine").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.tex").write_text("years of work")
    (tmp_path / ".servetwin-unfinished-0123456789ab").symlink_to(tmp_path / "elsewhere")
    write_result(tmp_path / "run")
    assert names(tmp_path) == {*kept, "elsewhere", "run"}
    assert names(tmp_path / "elsewhere") == {"thesis.tex"}


def test_a_folder_taken_for_a_dead_run_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []

    def late(folder: Path, wait: bool) -> int | None:
        if not taken:
            taken.append(folder)
            folder.rmdir()
        return lock_folder(folder, wait)

    monkeypatch.setattr(result_folder, "lock_folder", late)
    with ResultFolder(tmp_path / "run", overwrite=False) as folder:
        assert folder.path != taken[0]
        folder.commit()
    assert names(tmp_path) == {"run"}


def test_a_run_that_died_before_its_folder_got_its_name_gets_it(tmp_path: Path) -> None:
    dead = tmp_path / ".servetwin-unfinished-0123456789ab"
    dead.mkdir()
    (dead / "summary.json").write_text("complete")
    write_marker(dead, "run")
    assert "write overwrite=true" in refusal(tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").read_text() == "complete"


def test_an_earlier_result_that_a_dead_run_replaced_goes(tmp_path: Path) -> None:
    aside = replaced_name(tmp_path)
    write_result(tmp_path / "run").rename(aside)
    write_result(tmp_path / "run")
    assert names(tmp_path) == {"run"}


def test_what_came_into_a_replaced_result_is_kept(tmp_path: Path) -> None:
    aside = replaced_name(tmp_path)
    write_result(tmp_path / "run").rename(aside)
    (aside / "plots" / "mine.txt").write_text("mine")
    write_result(tmp_path / "run")
    assert names(tmp_path) == {"run", "run.1"}
    assert (tmp_path / "run.1" / "plots" / "mine.txt").read_text() == "mine"


def test_nothing_but_what_the_run_wrote_is_overwritten(tmp_path: Path) -> None:
    target = write_result(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for name, told in (("link", "holds link"), ("plots/a.svg", "holds plots/a.svg")):
        kept = (target / name).read_bytes() if (target / name).exists() else None
        (target / name).unlink(missing_ok=True)
        (target / name).symlink_to(tmp_path / "mine", target_is_directory=True)
        assert told in refusal(target, overwrite=True)
        (target / name).unlink()
        if kept is not None:
            (target / name).write_bytes(kept)
    (target / "empty").mkdir()
    assert "holds empty, which is not part" in refusal(target, overwrite=True)
    (target / "empty").rmdir()
    (target / "summary.json").write_text("my own summary")
    assert "holds summary.json, which is not part of its result or was changed" in refusal(target, True)
    assert names(tmp_path / "mine") == {"thesis.tex"}


def test_a_marker_that_names_other_places_deletes_nothing_there(tmp_path: Path) -> None:
    target = write_result(tmp_path / "run")
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    marker = json.loads((target / MARKER).read_text())
    marker["files"] |= {"../thesis.tex": 13, str(thesis): 13}
    (target / MARKER).write_text(json.dumps(marker | {"name": "../elsewhere"}))
    write_result(target, "second", overwrite=True)
    assert thesis.read_text() == "years of work"
    assert names(tmp_path) == {"run", "thesis.tex"}


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"name": 1, "files": []}', '{"name": "run", "files": {"a": "x"}}']
)
def test_a_spoilt_marker_is_none(tmp_path: Path, text: str) -> None:
    target = write_result(tmp_path / "run")
    (target / MARKER).write_text(text)
    assert "not a ServeTwin result" in refusal(target, overwrite=True)


def test_a_result_of_the_version_before_is_overwritten(tmp_path: Path) -> None:
    target = write_result(tmp_path / "run", "first")
    (target / MARKER).write_text("plots/a.svg\nsummary.json\n")
    write_result(target, "second", overwrite=True)
    assert names(tmp_path) == {"run"}
    assert (target / "summary.json").read_text() == "second"


def test_without_locks_nothing_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servetwin.results.unfinished.fcntl", None)
    (tmp_path / ".servetwin-unfinished-0123456789ab").mkdir()
    write_result(tmp_path / "run")
    assert names(tmp_path) == {"run", ".servetwin-unfinished-0123456789ab"}


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    def opened() -> int:
        """The lowest free descriptor."""
        found = os.open(tmp_path, os.O_RDONLY)
        os.close(found)
        return found

    before = opened()
    for number in range(3):
        write_result(tmp_path / "run", str(number), overwrite=True)
    with pytest.raises(UserError):
        write_result(tmp_path / "run")
    assert opened() == before
