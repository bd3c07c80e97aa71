"""Users' files are opened one way: regular ones only, and no more of them than fits the purpose."""

import os
from pathlib import Path

import pytest

from hwmodels import reading
from hwmodels.errors import HardwareError
from hwmodels.reading import lines_of, open_regular, read_limited
from tests.worlds.refusals import refuses


@pytest.fixture
def endless(tmp_path: Path) -> list[Path]:
    os.mkfifo(tmp_path / "pipe")
    return [tmp_path / "pipe", Path("/dev/zero")]


def test_what_may_never_end_is_not_opened(endless: list[Path]) -> None:
    for path in endless:
        for read in (open_regular, lambda path: read_limited(path, 9), lambda path: next(lines_of(path))):
            refuses(HardwareError, f"{path} is not a regular file; name a file", read, path)


def test_size_and_lines_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\ncdef\ng")
    assert read_limited(path, 9) == b"ab\ncdef\ng" and list(lines_of(path)) == ["ab\n", "cdef\n", "g"]
    refuses(HardwareError, f"{path} has 9 bytes and the limit is 8", read_limited, path, 8)
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", 4)
    refuses(HardwareError, f"{path} has a line of over 4 bytes", list, lines_of(path))
