"""What is kept between commands: found again as it was, ignored when damaged, never half written."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servetwin.config.compose import content_cache
from servetwin.config.compose.content_cache import (
    FOLDER_VARIABLE,
    MOST_ENTRIES,
    cache_folder,
    digest_of,
    kept,
)

VALUE = {"b": [1, 1.0, None, True, "ü\udc80"], "a": {"x": 1e300}}


class Maker:
    """Gives the value and counts how often it was asked."""

    def __init__(self, value: Any = VALUE) -> None:
        self.value, self.asked = value, 0

    def __call__(self) -> Any:
        self.asked += 1
        return self.value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    yield tmp_path / "cache"


def accepted(value: Any) -> bool:
    return True


def test_it_is_made_once_and_found_with_types_and_order(folder: Path) -> None:
    make = Maker()
    for _ in range(3):
        assert repr(kept("one", make, accepted)) == repr(VALUE)
    assert make.asked == 1 and [file.name for file in folder.iterdir()] == ["one.json"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "other", "deep", "folder"])
def test_a_damaged_entry_is_ignored_and_written_anew(folder: Path, damage: str) -> None:
    kept("one", Maker(), accepted)
    file = folder / "one.json"
    whole = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        deep = b"[" * 100_000
        file.write_bytes(
            {
                "truncated": whole[:-3],
                "changed": whole.replace(b"true", b"null"),
                "empty": b"",
                "other": b"\xff\xfe\n{}",
                "deep": digest_of([deep]).encode() + b"\n" + deep,
            }[damage]
        )
    make = Maker()
    assert kept("one", make, accepted) == VALUE and make.asked == 1
    assert damage == "folder" or file.read_bytes() == whole


def test_an_entry_that_is_not_good_is_made_anew(folder: Path) -> None:
    kept("one", Maker({"bad": 1}), accepted)
    assert kept("one", Maker(), lambda value: "bad" not in value) == VALUE
    assert kept("one", Maker(None), accepted) == VALUE


def test_what_json_would_change_is_not_kept(folder: Path) -> None:
    for value in ({1: "number as a key"}, (1, 2), float("nan"), {1, 2}):
        assert kept("one", Maker(value), accepted) is value
    assert not folder.exists()


def test_errors_are_not_kept(folder: Path) -> None:
    def fail() -> Any:
        raise ValueError("wrong")

    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"):
            kept("one", fail, accepted)
    assert not folder.exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_used_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(content_cache, "cache_folder", lambda: tmp_path / place)
    make = Maker()
    assert [kept("one", make, accepted) for _ in range(2)] == [VALUE] * 2 and make.asked == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:5])
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert kept("one", Maker(), accepted) == VALUE
    assert list(folder.iterdir()) == []


def test_nobody_reads_a_half_written_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last byte is written there is nothing under the name that is read."""
    seen = []

    def watched(self: Path, target: Path) -> Path:
        seen.append((target.exists(), content_cache._read(self)))
        os.replace(self, target)  # noqa: PTH105 (that method is patched)
        return target

    monkeypatch.setattr(Path, "replace", watched)
    kept("one", Maker(), accepted)
    assert seen == [(False, VALUE)]


def test_the_oldest_entries_go(folder: Path) -> None:
    kept("first", Maker(), accepted)
    for number in range(MOST_ENTRIES - 1):
        (folder / f"{number}.half").write_bytes(b"")  # as a killed process leaves it
        os.utime(folder / f"{number}.half", ns=(number, number))
    kept("last", Maker(), accepted)
    left = {file.name for file in folder.iterdir()}
    assert len(left) == MOST_ENTRIES and {"first.json", "last.json"} <= left and "0.half" not in left


def test_where_it_is() -> None:
    home = {"HOME": "/home/me"}
    assert cache_folder(home | {FOLDER_VARIABLE: "/kept", "XDG_CACHE_HOME": "/xdg"}) == Path("/kept")
    assert cache_folder(home | {"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/servetwin")
    for environ in (home, home | {"XDG_CACHE_HOME": ""}, home | {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environ) == Path.home() / ".cache/servetwin"
    assert cache_folder({FOLDER_VARIABLE: ""}) is None and cache_folder({FOLDER_VARIABLE: "off"}) is None


def test_nothing_of_the_tests_is_kept_in_the_users_folder() -> None:
    assert cache_folder() == Path(os.environ[FOLDER_VARIABLE]) != cache_folder({})


def test_parts_are_told_apart() -> None:
    assert len({digest_of(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["ab", "c", ""])}) == 4
    assert digest_of(["\udcff"]) == digest_of([b"\xff"]) and json.dumps("\udcff").isascii()
