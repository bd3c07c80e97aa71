"""Packed traces: what one may unpack to is bounded by its own size, before memory is spent."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from tests.worlds.refusals import refuses
from traces import reading
from traces.errors import TraceError
from traces.importers.azure import read_azure
from traces.importers.mooncake import read_mooncake
from traces.reading import head_of, most_unpacked_bytes, pieces

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = b"2023-11-16 18:15:46.6805900,374,44\n"
FREE_BYTES = 1 << 20


@pytest.fixture
def little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FREE_BYTES", FREE_BYTES)


def packed(folder: Path, rows: int = 1_000_000) -> Path:
    """A trace of 1 kB per MB: by default 35 MB in 104 kB."""
    path = folder / "trace.csv.gz"
    path.write_bytes(gzip.compress(HEADER + ROW * rows, 9, mtime=0))
    return path


@pytest.mark.usefixtures("little_is_free")
def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = packed(tmp_path)
    size = path.stat().st_size
    assert size < 150_000
    tracemalloc.start()
    try:
        with pytest.raises(
            TraceError, match=r"trace\.csv\.gz unpacks to more than .* unpack it and name"
        ) as told:
            read_azure(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(FREE_BYTES + 100 * size) in str(told.value)
    assert peak_bytes < 8 * reading.BLOCK_BYTES, "its columns were kept"
    refuses(TraceError, "unpacks to more than", head_of, path)


@pytest.mark.usefixtures("little_is_free")
@pytest.mark.parametrize("how", ["lies of its length", "two files in one"])
def test_a_file_that_hides_its_length_is_refused_while_it_is_read(tmp_path: Path, how: str) -> None:
    path = packed(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + gzip.compress(ROW) if how == "two files in one" else whole[:-4] + bytes(4))
    most_bytes, seen_bytes = most_unpacked_bytes(path.stat().st_size), 0
    with pytest.raises(TraceError, match="unpacks to more than"):
        for piece in pieces(path, 1 << 20):
            seen_bytes += len(piece)
    assert most_bytes - (1 << 20) <= seen_bytes <= most_bytes


@pytest.mark.usefixtures("little_is_free")
def test_the_same_rows_unpacked_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.decompress(packed(tmp_path, 100_000).read_bytes()))
    assert len(read_azure(path)) == 100_000


def test_a_day_of_equal_requests_is_read_packed(tmp_path: Path) -> None:
    assert len(read_azure(packed(tmp_path, 200_000))) == 200_000


def test_what_an_honest_trace_needs_is_free() -> None:
    """1.43 million rows of 40 bytes, packed 30 times; and a gigabyte of text, packed 10 times."""
    assert most_unpacked_bytes(57_200_000 // 30) > 57_200_000
    assert most_unpacked_bytes(2**30 // 10) > 2**30
    assert reading.MOST_BYTES > 2**31


def test_a_text_above_every_limit_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(HEADER + ROW * 100)
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    refuses(TraceError, "more than 1000 bytes of text: split it", read_azure, path)


@pytest.mark.parametrize("name", ["one.jsonl", "one.jsonl.gz"])
def test_one_enormous_line_is_refused_early(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = b'{"timestamp": 0, "hash_ids": [' + b"1," * 30_000_000
    path.write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    tracemalloc.start()
    try:
        refuses(TraceError, "a line of over 2097152 bytes: write one request per line", read_mooncake, path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 12 * reading.BLOCK_BYTES
