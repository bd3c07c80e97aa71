"""Arbitrary damage to a small trace: a TraceError or exactly the rows that the csv module sees."""

import csv
import gzip
import io
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.damage import damaged, edit, line_edit
from traces import reading
from traces.errors import TraceError
from traces.importers.azure import read_azure

VALID_2023 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9951690,396,109\r\n"
    b"2023-11-16 18:15:51.2224670,879,0\r\n"
    b"2023-11-16 18:15:51.2224670,91,16"
)
VALID_2024 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2024-05-10 00:00:00.009930+00:00,2162,5\n"
    b"2024-05-10 00:00:00.017335+00:00,2399,6\n"
    b"2024-05-10 00:00:01+00:00,76,15\n"
)


def rows_by_csv_module(text: bytes) -> list[tuple[int, int, int]]:
    """(stamp_ns, prompt, output) per row, by other means than the reader's."""
    rows = list(csv.reader(io.StringIO(text.decode("utf-8-sig"), newline="")))
    while not rows[-1]:
        rows.pop()
    at = [rows[0].index(name) for name in ("TIMESTAMP", "ContextTokens", "GeneratedTokens")]
    parsed = []
    for row in rows[1:]:
        assert len(row) == 3
        stamp, prompt, output = (row[i] for i in at)
        parsed.append((_stamp_ns(stamp.strip(" \t")), int(prompt), int(output)))
    return parsed


def _stamp_ns(stamp: str) -> int:
    zone_at = 19 if len(stamp) > 19 and stamp[19] != "." else 20
    while zone_at < len(stamp) and stamp[zone_at].isdigit():
        zone_at += 1
    moment = datetime.fromisoformat(stamp[:19] + (stamp[zone_at:] or "+00:00"))
    fraction = stamp[20:zone_at]
    whole = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (whole.days * 86_400 + whole.seconds) * 10**9 + int((fraction + "0" * 9)[:9])


@pytest.mark.parametrize("valid", [VALID_2023, VALID_2024])
@settings(max_examples=100)
@given(
    line_edits=st.lists(line_edit, max_size=2),
    edits=st.lists(edit, max_size=3),
    block_bytes=st.sampled_from([64, 90, 2 << 20]),
)
def test_damage_never_gives_a_wrong_row(
    tmp_path: Path,
    valid: bytes,
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
    block_bytes: int,
) -> None:
    text = damaged(valid, line_edits, edits)
    path = tmp_path / "trace.csv"
    path.write_bytes(text)
    with patch.object(reading, "BLOCK_BYTES", block_bytes):
        try:
            workload = read_azure(path)
        except TraceError as error:
            assert "trace.csv" in str(error) and "\n" not in str(error)
            return
    expected = rows_by_csv_module(text)
    start_ns = min(stamp for stamp, _, _ in expected)
    kept = [(stamp - start_ns, prompt, output) for stamp, prompt, output in expected if output > 0]
    columns = (workload.arrival_ns, workload.prompt_tokens, workload.output_tokens)
    assert list(zip(*(column.tolist() for column in columns))) == sorted(kept, key=lambda row: row[0])
    assert workload.rows_read == len(expected) == len(kept) + sum(workload.dropped.values())


@settings(max_examples=33)
@given(at=st.integers(0, 10_000), removed=st.integers(0, 4), added=st.binary(max_size=4))
def test_damage_to_a_gzip_file_is_a_trace_error_or_nothing(
    tmp_path: Path, at: int, removed: int, added: bytes
) -> None:
    whole = gzip.compress(VALID_2023, mtime=0)
    i = at % len(whole)
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(whole[:i] + added + whole[i + removed :])
    try:
        workload = read_azure(path)
    except TraceError as error:
        assert "trace.csv.gz" in str(error)
        return
    assert workload.prompt_tokens.tolist() == [374, 396, 91]  # gzip's checksum guards the content
