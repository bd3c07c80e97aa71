"""A result folder is complete under its name or not there at all, and nobody's files are lost."""

import os
from pathlib import Path

import pytest

from servetwin.results.known_files import MARKER
from servetwin.results.result_folder import ResultFolder
from serving.vocabulary.errors import UserError
from tests.worlds.result_folders import names, refusal, write_result


def test_nothing_is_seen_under_the_name_before_commit(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run"
    with ResultFolder(target, overwrite=False) as folder:
        (folder.path / "summary.json").write_text("{}")
        assert not target.exists()
        assert folder.path.parent == target.parent
        folder.commit()
        assert (target / "summary.json").read_text() == "{}"
    assert names(target) == {"summary.json", MARKER}
    assert names(target.parent) == {"run"}


def test_an_earlier_result_survives_a_run_that_stops(tmp_path: Path) -> None:
    write_result(tmp_path / "run", "first")
    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path / "run", overwrite=True):
        raise KeyboardInterrupt
    assert (tmp_path / "run" / "summary.json").read_text() == "first"
    assert names(tmp_path) == {"run"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "not a ServeTwin result" in refusal(tmp_path, overwrite)
    assert names(tmp_path) == {"thesis.tex"}


@pytest.mark.parametrize("note", ["notes.txt", "plots/notes.txt", "odd\nname"])
def test_a_file_added_to_a_result_is_not_overwritten(tmp_path: Path, note: str) -> None:
    write_result(tmp_path / "run")
    (tmp_path / "run" / note).write_text("mine")
    assert note in refusal(tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / note).read_text() == "mine"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_result(tmp_path / "run")
    assert "summary.json" in names(tmp_path / "run")


def test_a_link_leads_to_the_folder_it_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_result(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert "summary.json" in names(tmp_path / "real")


def test_a_place_one_may_not_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)
    assert "Permission denied" in refusal(tmp_path / "run")


def test_results_are_kept_when_the_name_was_taken_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with pytest.raises(UserError, match=r"kept in .*run\.1"), ResultFolder(target, overwrite=False) as folder:
        (folder.path / "summary.json").write_text("costly")
        write_result(target, "other")
        folder.commit()
    assert (target / "summary.json").read_text() == "other"
    assert (tmp_path / "run.1" / "summary.json").read_text() == "costly"


def test_a_failed_exchange_puts_the_earlier_result_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "run"
    write_result(target, "first")
    rename = Path.rename

    def failing(self: Path, to: Path) -> Path:
        if to == target and "unfinished" in self.name:
            raise OSError(16, "Device or resource busy")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(UserError, match="kept in"):
        write_result(target, "second", overwrite=True)
    assert (target / "summary.json").read_text() == "first"
    assert (tmp_path / "run.1" / "summary.json").read_text() == "second"


def test_the_folder_has_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        target = write_result(tmp_path / "run")
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o755


def test_writing_outside_of_a_run_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "run", overwrite=False)
    with pytest.raises(RuntimeError):
        _ = folder.path
    folder.prepare()
    folder.commit()
    with pytest.raises(RuntimeError):
        folder.commit()
