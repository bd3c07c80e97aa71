"""The Azure reader: exact on good files, one sentence on bad ones."""

import csv
import gzip
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from tests.worlds.refusals import refuses
from traces import reading
from traces.errors import TraceError
from traces.find import FILE_NAMES, trace_folders
from traces.importers.azure import read_azure
from traces.importers.requests import DROPPED_ZERO_OUTPUT

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROW = "2023-11-16 18:15:46.6805900,374,44"
LATER = "2023-11-16 18:15:50.9951690,396,109"
ROWS_OF_REAL_FILES = {"azure_conv": 19_366, "azure_code": 8_819}
REPOSITORY = Path(__file__).resolve().parents[2]


def written(folder: Path, *lines: str | bytes, name: str = "trace.csv", ending: bytes = b"\n") -> Path:
    path = folder / name
    data = b"".join((line.encode() if isinstance(line, str) else line) + ending for line in lines)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(path: Path) -> str:
    return refuses(TraceError, re.escape(path.name), read_azure, path)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_reads_both_line_endings_plain_and_gzipped(tmp_path: Path, name: str, ending: bytes) -> None:
    workload = read_azure(written(tmp_path, HEADER, ROW, LATER, name=name, ending=ending))
    assert workload.arrival_ns.tolist() == [0, 4_314_579_000]
    assert workload.prompt_tokens.tolist() == [374, 396]
    assert workload.output_tokens.tolist() == [44, 109]
    assert (workload.name, workload.rows_read, workload.dropped) == ("trace", 2, {})
    assert workload.labels == () and workload.max_new_tokens is None
    assert re.fullmatch(re.escape(name) + r" sha256=[0-9a-f]{64}", workload.source)


def test_last_line_needs_no_newline_and_trailing_empty_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    for tail in ("", "\n", "\r\n", "\n\n\r\n\n"):
        path.write_bytes((f"{HEADER}\n{ROW}\n{LATER}" + tail).encode())
        assert read_azure(path).output_tokens.tolist() == [44, 109]


@pytest.mark.parametrize(
    ("stamps", "arrival_ns"),
    [
        (["2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:00.017335+00:00"], [0, 7_405_000]),
        (["2024-05-10 00:00:00+00:00", "2024-05-10 00:00:00.000001+00:00"], [0, 1000]),
        (["2024-05-10T00:00:00Z", "2024-05-10 00:00:01.5+00:00"], [0, 1_500_000_000]),
        (["2024-05-10 02:00:00+02:00", "2024-05-09 19:00:01-05:00"], [0, 1_000_000_000]),
        (["2023-11-16 18:15:46.123456789", "2023-11-16 18:15:46.123456790"], [0, 1]),
        (["2024-02-28 23:59:59.9999999", "2024-02-29 00:00:00"], [0, 100]),
        (["2023-12-31 23:59:59", "2024-01-01 00:00:00.1"], [0, 1_100_000_000]),
        (["1970-01-01 00:00:00", "2261-12-31 23:59:59.999999999"], [0, 9_214_646_399_999_999_999]),
    ],
)
def test_timestamps_are_exact_to_the_nanosecond(
    tmp_path: Path, stamps: list[str], arrival_ns: list[int]
) -> None:
    path = written(tmp_path, HEADER, *(f"{stamp},5,6" for stamp in stamps))
    assert read_azure(path).arrival_ns.tolist() == arrival_ns


def test_every_day_of_four_centuries_has_its_own_place(tmp_path: Path) -> None:
    days = [datetime(1970, 1, 1) + timedelta(days=i) for i in range(0, 292 * 365, 5)]
    path = written(tmp_path, HEADER, *(f"{day:%Y-%m-%d} 00:00:00,5,6" for day in days))
    assert read_azure(path).arrival_ns.tolist() == [i * 5 * 86_400 * 10**9 for i in range(len(days))]


def test_unusual_but_clear_rows_are_read(tmp_path: Path) -> None:
    quoted = '"2023-11-16 18:15:47","0007", 8 '
    workload = read_azure(written(tmp_path, b"\xef\xbb\xbf" + HEADER.encode(), ROW, quoted, LATER))
    assert workload.prompt_tokens.tolist() == [374, 7, 396]
    assert workload.output_tokens.tolist() == [44, 8, 109]


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    path = written(tmp_path, "GeneratedTokens,TIMESTAMP,ContextTokens", "44,2023-11-16 18:15:46.68,374")
    workload = read_azure(path)
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([374], [44])


def test_zero_output_rows_are_dropped_counted_and_keep_the_clock(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, "2023-11-16 18:15:45.68,9,0", "2023-11-16 18:15:45.78,9,0", ROW, LATER)
    workload = read_azure(path)
    assert workload.arrival_ns.tolist() == [1_000_590_000, 5_315_169_000]
    assert workload.dropped == {DROPPED_ZERO_OUTPUT: 2}
    assert workload.rows_read == len(workload) + sum(workload.dropped.values()) == 4


def test_equal_timestamps_keep_file_order(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, *(f"2023-11-16 18:15:46,{n},1" for n in (5, 3, 9, 1)))
    workload = read_azure(path)
    assert workload.prompt_tokens.tolist() == [5, 3, 9, 1]
    assert workload.arrival_ns.tolist() == [0] * 4


def test_blocks_of_any_size_give_the_same_rows(tmp_path: Path) -> None:
    lines = [f"2023-11-16 18:15:{i % 60:02d}.{i:07d},{i + 1},{10 ** (i % 7)}" for i in range(60)]
    path = written(tmp_path, HEADER, *lines, ending=b"\r\n")
    whole = read_azure(path)
    for size in (41, 64, 100, 1000):
        with patch.object(reading, "BLOCK_BYTES", size):
            parts = read_azure(path)
        assert parts.arrival_ns.tolist() == whole.arrival_ns.tolist()
        assert parts.prompt_tokens.tolist() == whole.prompt_tokens.tolist() == list(range(1, 61))
        assert parts.output_tokens.tolist() == whole.output_tokens.tolist()


BAD_CELLS = [
    ("ContextTokens", "", "value is missing"),
    ("ContextTokens", "NaN", "value is missing"),
    ("GeneratedTokens", "null", "value is missing"),
    ("ContextTokens", "abc", "not a whole number"),
    ("GeneratedTokens", "1e3", "not a whole number"),
    ("GeneratedTokens", "1_000", "not a whole number"),
    ("GeneratedTokens", "+5", "not a whole number"),
    ("GeneratedTokens", "0x10", "not a whole number"),
    ("ContextTokens", "٣٧٤", "not a whole number"),
    ("ContextTokens", "-374", "negative"),
    ("GeneratedTokens", "-1", "negative"),
    ("ContextTokens", "374.5", "fraction"),
    ("GeneratedTokens", "44.0", "fraction"),
    ("ContextTokens", "10000001", "more than 10000000"),
    ("GeneratedTokens", "9" * 5000, "more than 10000000"),
    ("ContextTokens", "0", "0 prompt tokens"),
    ("TIMESTAMP", "", "value is missing"),
    ("TIMESTAMP", "NaT", "not a timestamp"),
    ("TIMESTAMP", "yesterday", "not a timestamp"),
    ("TIMESTAMP", "1700158546", "not a timestamp"),
    ("TIMESTAMP", "2023-11-16", "not a timestamp"),
    ("TIMESTAMP", "16/11/2023 18:15:47", "not a timestamp"),
    ("TIMESTAMP", "2023-11-16 18:15:47.", "not a timestamp"),
    ("TIMESTAMP", "2023-11-16 18:15:47.1234567890", "not a timestamp"),
    ("TIMESTAMP", "2023-11-16 18:15:47.12x", "not a timestamp"),
    ("TIMESTAMP", "2023-02-29 18:15:47", "exists"),
    ("TIMESTAMP", "2023-13-01 18:15:47", "exists"),
    ("TIMESTAMP", "2023-11-16 24:00:00", "exists"),
    ("TIMESTAMP", "2023-11-16 18:15:60", "exists"),
    ("TIMESTAMP", "1969-12-31 23:59:59", "outside the years"),
    ("TIMESTAMP", "2262-01-01 00:00:00", "outside the years"),
    ("TIMESTAMP", "2023-11-16 18:15:47+99:00", "zone that does not exist"),
    ("TIMESTAMP", "2023-11-16 18:15:47+00:00", "a time zone and the first row's has none"),
]


@pytest.mark.parametrize(("column", "cell", "problem"), BAD_CELLS)
def test_a_bad_cell_is_named_by_file_line_and_column(
    tmp_path: Path, column: str, cell: str, problem: str
) -> None:
    fields = dict(zip(HEADER.split(","), ["2023-11-16 18:15:47", "5", "6"]))
    fields[column] = cell
    sentence = refusal(written(tmp_path, HEADER, ROW, ",".join(fields.values()), LATER))
    assert f"trace.csv, line 3, column {column}:" in sentence
    assert problem in sentence
    assert re.search(r": (write|correct)", sentence), "no remedy"


BAD_LINES: list[tuple[str | bytes, str]] = [
    ("2023-11-16 18:15:47,5", "2 fields are too few"),
    ("2023-11-16 18:15:47", "1 fields are too few"),
    ("2023-11-16 18:15:47,5,6,7", "4 fields are too many"),
    ("2023-11-16 18:15:47,5,6,", "4 fields are too many"),
    ("# a comment", "1 fields are too few"),
    ("", "the line is empty"),
    ("   ", "the line is empty"),
    (HEADER, "'TIMESTAMP' is not a timestamp"),
    ('2023-11-16 18:15:47,"5,6', "not valid CSV"),
    (b"2023-11-16 18:15:47,5\0,6", "NUL"),
    (b"2023-11-16 18:15:47,\xff,6", "not UTF-8"),
    (b"2023-11-16 18:15:47,5,6\r2023-11-16 18:15:48,5,6", "carriage return"),
    (b"2023-11-16 18:15:47,5,6\r\r", "carriage return"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_a_bad_line_is_named_by_file_and_line(tmp_path: Path, line: str | bytes, problem: str) -> None:
    for ending in (b"\n", b"\r\n"):
        sentence = refusal(written(tmp_path, HEADER, ROW, line, LATER, ending=ending))
        assert "trace.csv, line 3" in sentence and problem in sentence


def test_the_first_bad_line_is_named_in_a_long_file(tmp_path: Path) -> None:
    good = [ROW] * 1000
    path = written(tmp_path, HEADER, *good, "2023-11-16 18:15:47,x,6", "2023-11-16 18:15:47,y,6")
    for size in (100, reading.BLOCK_BYTES):
        with patch.object(reading, "BLOCK_BYTES", size):
            assert "line 1002," in refusal(path)


def test_an_empty_line_at_a_block_edge_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, *[ROW] * 20, "", "", *[LATER] * 20)
    for size in range(38, 120):
        with patch.object(reading, "BLOCK_BYTES", size):
            assert "line 22:" in refusal(path)


def test_rows_out_of_order_are_sorted_with_a_label(tmp_path: Path) -> None:
    workload = read_azure(written(tmp_path, HEADER, LATER, "2023-11-16 18:15:50,3,0", ROW, LATER))
    assert workload.arrival_ns.tolist() == [0, 4_314_579_000, 4_314_579_000]
    assert workload.labels == ("rows sorted by arrival: 1 arrived before the row above",)
    assert len(read_azure(written(tmp_path, HEADER, LATER, ROW), limit=1)) == 1  # the file's first row


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, "1" * 5000)
    with patch.object(reading, "BLOCK_BYTES", 500):
        assert "a line of over 500 bytes" in refusal(path)


def test_an_unreadable_file_is_explained(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, ROW)
    with patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        assert "permissions" in refusal(path)


@pytest.mark.parametrize("name", [name for name in FILE_NAMES if name.startswith("azure")])
def test_the_published_file_agrees_with_the_csv_module(name: str) -> None:
    folders = trace_folders(os.environ, REPOSITORY)
    path = next((f / FILE_NAMES[name] for f in folders if (f / FILE_NAMES[name]).is_file()), None)
    if path is None:
        pytest.skip(f"{FILE_NAMES[name]} is not in {', '.join(map(str, folders))}: set SERVETWIN_TRACES")
    workload = read_azure(path)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert len(workload) == len(rows) == ROWS_OF_REAL_FILES[name]
    assert workload.prompt_tokens.tolist() == [int(row[1]) for row in rows]
    assert workload.output_tokens.tolist() == [int(row[2]) for row in rows]
    seconds = np.array([row[0][:19] for row in rows], dtype="datetime64[s]").astype(np.int64)
    stamps = seconds * 10**9 + np.array([int(row[0][20:].ljust(9, "0")) for row in rows])
    assert (workload.arrival_ns == stamps - stamps[0]).all()
