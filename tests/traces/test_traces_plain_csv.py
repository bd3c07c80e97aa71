"""Plain CSV: what is written is read back exactly, and what cannot be is refused."""

import csv
import gzip
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.damage import damaged, edit, line_edit
from traces import reading
from traces.column_names import OURS as OUR_NAMES
from traces.column_names import PREFIX
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.importers import plain_csv as plain_csv_writer
from traces.importers.plain_csv import read_plain_csv, write_plain_csv
from traces.workload import COLUMNS, MAX_TOKENS, Workload

INT64 = 2**63 - 1
loose = settings(max_examples=50)
word = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), min_size=1, max_size=20)


def workload_of(**columns: Any) -> Workload:
    rows = len(columns["arrival_ns"])
    ones = [1] * rows
    return Workload(
        **{"prompt_tokens": ones, "output_tokens": ones, "name": "made", "source": "a test"} | columns
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(st.integers(1, 12))

    def numbers(least: int, most: int) -> st.SearchStrategy[list[int]]:
        either = st.integers(least, most) | st.integers(max(least, -3), 12)
        return st.lists(either, min_size=rows, max_size=rows)

    def maybe(column: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | column)

    names = st.lists(word, min_size=rows, max_size=rows).map(Names.of)
    some = st.lists(st.none() | word, min_size=rows, max_size=rows).map(Names.of)
    ids = st.lists(st.lists(st.integers(0, INT64), max_size=4), min_size=rows, max_size=rows)
    return workload_of(
        arrival_ns=sorted(draw(numbers(0, INT64))),
        prompt_tokens=draw(numbers(1, MAX_TOKENS).map(lambda n: [max(1, i) for i in n])),
        output_tokens=draw(numbers(1, MAX_TOKENS).map(lambda n: [max(1, i) for i in n])),
        max_new_tokens=maybe(numbers(1, MAX_TOKENS).map(lambda n: [max(1, i) for i in n])),
        model=maybe(names),
        priority=maybe(numbers(-INT64 - 1, INT64)),
        session=maybe(some),
        prefix=maybe(st.builds(PrefixBlocks.of, ids, st.integers(1, 10**9 - 1))),
        images=maybe(numbers(0, INT64)),
        source_duration_ns=maybe(numbers(-1, INT64).map(lambda n: [max(-1, i) for i in n])),
    )


def plain(column: Any) -> Any:
    """A column as Python values."""
    if isinstance(column, PrefixBlocks):
        return column.block_tokens, [column[row] for row in range(len(column))]
    return None if column is None else column.tolist()


@loose
@given(
    workload=workloads(), block_bytes=st.sampled_from([1000, 2 << 20]), rows=st.sampled_from([1, 3, 50_000])
)
def test_the_round_trip_is_exact(tmp_path: Path, workload: Workload, block_bytes: int, rows: int) -> None:
    for name in ("made.csv", "made.csv.gz"):
        path = tmp_path / name
        with patch.object(plain_csv_writer, "_ROWS", rows):
            assert write_plain_csv(workload, path, overwrite=True) == ()
        with patch.object(reading, "BLOCK_BYTES", block_bytes):
            back = read_plain_csv(path)
        for column in COLUMNS:
            assert plain(getattr(back, column)) == plain(getattr(workload, column)), column
        assert (back.name, back.rows_read, back.dropped, back.labels) == ("made", len(workload), {}, ())
    assert gzip.decompress(path.read_bytes()) == (tmp_path / "made.csv").read_bytes()


def test_the_file_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    write_plain_csv(
        workload_of(
            arrival_ns=[0, 5],
            model=Names.of(["a", 'b,"c"']),
            session=Names.of([None, "s"]),
            priority=[-1, 2],
            source_duration_ns=[-1, 7],
            prefix=PrefixBlocks.of([[], [0, 12]], 512),
        ),
        path,
    )
    assert path.read_text() == (
        "arrival_ns,prompt_tokens,output_tokens,model,priority,session,source_duration_ns,prefix_512\n"
        '0,1,1,a,-1,,-1,\n5,1,1,"b,""c""",2,s,7,0 12\n'
    )
    rows = list(csv.reader(path.read_text().splitlines()))
    assert rows[2] == ["5", "1", "1", 'b,"c"', "2", "s", "7", "0 12"]


@pytest.mark.parametrize(
    ("column", "cells", "arrival_ns"),
    [
        ("arrival_s", ["0", "1.5", "2.0000000015"], [0, 1_500_000_000, 2_000_000_002]),
        ("arrival_ms", ["0.5", "1", "1e3"], [500_000, 1_000_000, 1_000_000_000]),
        ("arrival_ns", ["7", "7", "9"], [7, 7, 9]),
    ],
)
def test_arrivals_may_be_decimals(
    tmp_path: Path, column: str, cells: list[str], arrival_ns: list[int]
) -> None:
    path = tmp_path / "made.csv"
    path.write_text(f"output_tokens,{column},prompt_tokens\n" + "".join(f"5,{cell},6\n" for cell in cells))
    workload = read_plain_csv(path)
    assert workload.arrival_ns.tolist() == arrival_ns
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([6] * 3, [5] * 3)
    part = read_plain_csv(path, name="mine", limit=2)
    assert (len(part), part.name, part.labels) == (2, "mine", ("first 2 of 3 requests",))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["is empty"]),
        (
            "prompt_tokens,output_tokens\n1,1\n",
            ["no column for arrival", "'prompt_tokens', 'output_tokens'", "trace.columns=[arrival:COLUMN]"],
        ),
        (
            "arrival_ns,arrival_s,prompt_tokens,output_tokens\n",
            ["column arrival_s", "arrival_ns also holds arrivals"],
        ),
        ("arrival_ns,output_tokens\n", ["no column for prompt_tokens", "'arrival_ns', 'output_tokens'"]),
        ("arrival_ns,prompt_tokens,output_tokens,prefix_1,prefix_2\n", ["column prefix_2", "keep one"]),
        ("arrival_ns,prompt_tokens,output_tokens,prefix_1,prefix_1\n", ["column prefix_1", "keep one"]),
        ("arrival_ns,prompt_tokens,output_tokens,prefix_0\n", ["'prefix_0' is unknown"]),
        ("arrival_ns,prompt_tokens,output_tokens\n", ["no requests"]),
        ("arrival_ns,prompt_tokens,output_tokens\n5,0,1\n", ["line 2, column prompt_tokens", "at least 1"]),
        ("arrival_ns,prompt_tokens,output_tokens\n5,1,0\n", ["line 2, column output_tokens", "at least 1"]),
        ("arrival_ns,prompt_tokens,output_tokens\n5.5,1,1\n", ["line 2, column arrival_ns", "fraction"]),
        ("arrival_ns,prompt_tokens,output_tokens,images\n5,1,1,-1\n", ["column images", "negative"]),
        ("arrival_ns,prompt_tokens,output_tokens,model\n5,1,1,\n", ["column model", "empty"]),
        (f"arrival_ns,prompt_tokens,output_tokens\n{INT64 + 1},1,1\n", ["arrival_ns", "more than"]),
        (
            f"arrival_ns,prompt_tokens,output_tokens,priority\n5,1,1,{-INT64 - 2}\n",
            ["priority", "fewer than"],
        ),
    ],
)
def test_a_bad_file_is_explained(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "made.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_plain_csv(path)
    for part in ["made.csv", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ({"session": Names.of(["a\nb"])}, "line break"),
        ({"session": Names.of(["a\rb"])}, "line break"),
        ({"session": Names.of(["a\0b"])}, "NUL"),
        ({"model": Names.of(["w" * 1025])}, "1024 bytes"),
        ({"prefix": PrefixBlocks.of([[1]], 10**9)}, "prefix blocks of over"),
        ({"prefix": PrefixBlocks.of([[INT64] * 30_000], 16)}, "too many prefix blocks"),
    ],
)
def test_what_would_not_come_back_is_not_written(tmp_path: Path, columns: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError, match=re.escape(part)) as caught:
        write_plain_csv(workload_of(arrival_ns=[0], **columns), tmp_path / "made.csv")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_words_that_no_row_has_are_no_obstacle(tmp_path: Path) -> None:
    names = Names(np.array([1]), ("a\nb", "b"))
    write_plain_csv(workload_of(arrival_ns=[0], model=names), tmp_path / "made.csv")
    assert plain(read_plain_csv(tmp_path / "made.csv").model) == ["b"]


def test_nothing_is_overwritten_unless_told_and_nothing_is_left_half_written(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    path.write_text("mine")
    workload = workload_of(arrival_ns=[0, 1])
    with pytest.raises(TraceError, match="exists"):
        write_plain_csv(workload, path)
    with patch.object(plain_csv_writer, "_cells", side_effect=OSError(28, "")), pytest.raises(TraceError):
        write_plain_csv(workload, path, overwrite=True)
    assert path.read_text() == "mine" and list(tmp_path.iterdir()) == [path]
    write_plain_csv(workload, path, overwrite=True)
    assert len(read_plain_csv(path)) == 2 and list(tmp_path.iterdir()) == [path]
    with pytest.raises(TraceError, match="cannot be written"):
        write_plain_csv(workload, tmp_path / "absent" / "made.csv")
    with pytest.raises(TraceError):
        write_plain_csv(workload, tmp_path, overwrite=True)


OURS = {*OUR_NAMES}
VALID = (
    b"arrival_ms,prompt_tokens,output_tokens,model,priority,session,prefix_512,source_duration_ns\n"
    b'0.5,374,44,a,-1,s1,0 1,\n1.25,9,8,"b,c",2,,,7\n20,600,10000000,a,0,"s""1",0 12 13,1\n'
)


@settings(max_examples=125)
@given(
    line_edits=st.lists(line_edit, max_size=2),
    edits=st.lists(edit, max_size=3),
    block_bytes=st.sampled_from([120, 160, 2 << 20]),
)
def test_damage_never_gives_a_wrong_row(
    tmp_path: Path,
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
    block_bytes: int,
) -> None:
    text = damaged(VALID, line_edits, edits)
    path = tmp_path / "made.csv"
    path.write_bytes(text)
    with patch.object(reading, "BLOCK_BYTES", block_bytes):
        try:
            found = read_plain_csv(path)
        except TraceError as error:
            assert "made.csv" in str(error) and "\n" not in str(error)
            return
    lines = text.decode("utf-8-sig").rstrip("\r\n").split("\n")
    names, *rows = [next(csv.reader([line.removesuffix("\r")], strict=True)) for line in lines]
    if not OURS.issuperset(name for name in names if not PREFIX.fullmatch(name)):
        assert any(
            label.startswith("columns ") for label in found.labels
        )  # a damaged name became a common one
        return
    at = next(at for at, name in enumerate(names) if name.startswith("arrival"))
    rows.sort(key=lambda cells: Decimal(cells[at].strip(" \t")))
    for row, cells in enumerate(rows):
        assert len(cells) == len(names)
        for name, cell in zip(names, cells):
            assert agrees(found, row, name, cell), (name, cell)
    assert len(found) == len(rows)


def agrees(found: Workload, row: int, name: str, cell: str) -> bool:
    if name.startswith("arrival"):
        factor = {"arrival_s": 10**9, "arrival_ms": 10**6, "arrival_ns": 1}[name]
        return abs(found.arrival_ns[row] - float(cell) * factor) <= 0.5 + 1e-3
    if name.startswith("prefix"):
        assert found.prefix is not None and found.prefix.block_tokens == int(name[7:])
        return found.prefix[row] == tuple(map(int, cell.split()))
    column = getattr(found, name)
    if isinstance(column, Names):
        return column[row] == (cell or None)
    return bool(column[row] == (int(cell) if cell.strip(" \t") else -1))
