"""The CSV engine: cells of every kind are exact, however the file is cut into blocks."""

import csv
import re
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces import reading
from traces.columns import ABSENT, PrefixBlocks
from traces.csv import word as csv_word
from traces.csv.column import Kind
from traces.csv.decimal import MAX_NS, Decimal
from traces.csv.ids import Ids
from traces.csv.table import Field, Table, read_header, read_table
from traces.csv.whole import Whole
from traces.csv.word import MAX_WORD_BYTES, Word, compacted
from traces.errors import TraceError
from traces.workload import INT64_MAX

NS = 10**9
loose = settings(max_examples=50)
block_sizes = st.sampled_from([40, 64, 200, 2 << 20])


def table_of(path: Path, kind: Kind, cells: list[str], block_bytes: int = 2 << 20, end: str = "\n") -> Table:
    """One column ``x`` of ``cells`` as they are, after a column of row numbers."""
    text = "".join(f"{line}{end}" for line in ["n,x", *(f"{i},{cell}" for i, cell in enumerate(cells))])
    path.write_bytes(text.encode())
    with patch.object(reading, "BLOCK_BYTES", max(block_bytes, max(map(len, text.split("\n"))) + 1)):
        return read_table(path, [Field("n", Whole()), Field("x", kind)])


def refusal(path: Path, kind: Kind, *cells: str) -> str:
    return refuses(TraceError, re.escape(path.name), table_of, path, kind, list(cells))


@loose
@given(
    values=st.lists(st.integers(-INT64_MAX - 1, INT64_MAX) | st.integers(-99, 99), min_size=1),
    zeros=st.integers(0, 3),
    quoted=st.booleans(),
    block_bytes=block_sizes,
)
def test_whole_numbers_are_exact(
    tmp_path: Path, values: list[int], zeros: int, quoted: bool, block_bytes: int
) -> None:
    cells = ["-" * (value < 0) + "0" * zeros + str(abs(value)) for value in values]
    cells[::2] = [f'"{cell}"' if quoted else cell for cell in cells[::2]]
    table = table_of(tmp_path / "t.csv", Whole(-INT64_MAX - 1, INT64_MAX), cells, block_bytes)
    assert table.columns["x"].tolist() == values
    assert table.columns["n"].tolist() == list(range(len(values)))


@pytest.mark.parametrize("width", range(1, 20))
def test_every_width_of_number_is_read_and_its_neighbours_left_alone(tmp_path: Path, width: int) -> None:
    cells = ["9" * width if width < 19 else str(INT64_MAX), "1" + "0" * (width - 1), "7", "12345678"]
    assert table_of(tmp_path / "t.csv", Whole(0, INT64_MAX), cells).columns["x"].tolist() == list(
        map(int, cells)
    )


def test_no_byte_but_a_digit_passes_for_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for byte, at in product([*range(1, 10), 11, 12, *range(14, 256)], range(10)):
        cell = b"1234567890"[:at] + bytes([byte]) + b"1234567890"[at + 1 :]
        path.write_bytes(b"x,y\n5," + cell + b"\n" + cell + b",5\n")
        try:
            table = read_table(path, [Field("x", Whole(0, INT64_MAX)), Field("y", Whole(0, INT64_MAX))])
        except TraceError:
            continue
        assert cell.strip(b" \t").isdigit()
        assert table.columns["y"][0] == table.columns["x"][1] == int(cell)


def rounded_ns(text: str, digits: int = 9) -> int:
    return (Fraction(text) * 10**digits * 2 + 1).__floor__() // 2


decimals = st.from_regex(r"[0-9]{1,10}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@loose
@given(cells=st.lists(decimals | st.floats(0, 1e9).map(repr), min_size=1), block_bytes=block_sizes)
@example(cells=["5160.142570018768", "19440110.0", "0.0000000005"], block_bytes=2 << 20)
@example(cells=["5", "0.00000000049999999999999999999999999"], block_bytes=2 << 20)
@example(cells=["8999999999.999999999", "9000000000", "5e-05", "1.5E3", "0.9999999995"], block_bytes=40)
def test_decimal_seconds_are_exact_to_the_nanosecond(
    tmp_path: Path, cells: list[str], block_bytes: int
) -> None:
    cells = [cell for cell in cells if rounded_ns(cell) <= MAX_NS] or ["0"]
    table = table_of(tmp_path / "t.csv", Decimal(), cells, block_bytes)
    assert table.columns["x"].tolist() == [rounded_ns(cell) for cell in cells]
    table = table_of(tmp_path / "t.csv", Decimal(6, "milliseconds"), cells, block_bytes)
    assert table.columns["x"].tolist() == [rounded_ns(cell, 6) for cell in cells]


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("", "value is missing"), ("nan", "value is missing"), ("-5", "negative"), ("5.", "not a number"),
        (".5", "not a number"),
        ("1.2.3", "not a number"), ("1,5", "fields are too many"), ("1e", "not a number"),
        ("inf", "not a number"), ("0x5", "not a number"), ("9000000001", "285 years"), ("1e999", "285 years"),
        ("0." + "1" * 500, "502 characters"), ("٣", "not a number"),
    ],
)  # fmt: skip
def test_a_bad_decimal_is_refused(tmp_path: Path, cell: str, problem: str) -> None:
    sentence = refusal(tmp_path / "t.csv", Decimal(), "5", cell, "6")
    assert "line 3" in sentence and problem in sentence


@pytest.mark.parametrize("kind", [Whole(-1, 100, blank=-1), Decimal(blank=-1)])
def test_blank_numbers_are_what_the_kind_says(tmp_path: Path, kind: Kind) -> None:
    table = table_of(tmp_path / "t.csv", kind, ["", "0", '""', " ", ""], end="\r\n")
    assert table.columns["x"].tolist() == [-1, 0, -1, -1, -1]


words = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=30) | st.sampled_from(
    [
        "ChatGPT",
        "GPT-4",
        "a" * 8,
        "a" * 9,
        "a" * 64,
        "a" * 63 + "b",
        "é" * 9,
        '"',
        ",",
        " x ",
        "Conversation log",
    ]
)


@loose
@given(values=st.lists(words, min_size=1), block_bytes=block_sizes, collide=st.booleans())
def test_words_are_exact_even_when_every_hash_collides(
    tmp_path: Path, values: list[str], block_bytes: int, collide: bool
) -> None:
    cells = ['"' + value.replace('"', '""') + '"' if set(value) & set('",') else value for value in values]
    with patch.object(csv_word, "_MIX", np.uint64(0) if collide else csv_word._MIX):
        names = table_of(tmp_path / "t.csv", Word(blank=True), cells, block_bytes).columns["x"]
    assert names.tolist() == [value or None for value in values]
    assert names.words == tuple(dict.fromkeys(value for value in values if value))


def test_a_word_may_be_long_but_not_endless(tmp_path: Path) -> None:
    long = "w" * MAX_WORD_BYTES
    assert table_of(tmp_path / "t.csv", Word(), ["a", long]).columns["x"].tolist() == ["a", long]
    assert "1025 bytes" in refusal(tmp_path / "t.csv", Word(), "a", long + "w")
    assert "the cell is empty" in refusal(tmp_path / "t.csv", Word(), "a", "")


def test_compacted_names_keep_the_order_of_first_appearance() -> None:
    codes = np.array([ABSENT, 3, 1, 3, ABSENT, 1], dtype=np.int32)
    with patch.object(csv_word, "_ROWS", 2):
        names = compacted(codes, ("a", "b", "c", "d"))
    assert (names.tolist(), names.words) == ([None, "d", "b", "d", None, "b"], ("d", "b"))


@loose
@given(
    rows=st.lists(st.lists(st.integers(0, INT64_MAX) | st.integers(0, 20), max_size=6), min_size=1),
    block_bytes=block_sizes,
    quoted=st.sets(st.integers(0, 5)),
)
def test_lists_of_ids_are_exact(
    tmp_path: Path, rows: list[list[int]], block_bytes: int, quoted: set[int]
) -> None:
    cells = [" ".join(map(str, ids)) for ids in rows]
    cells = [f'"{cell}"' if i in quoted else cell for i, cell in enumerate(cells)]
    blocks = table_of(tmp_path / "t.csv", Ids(16), cells, block_bytes).columns["x"]
    assert isinstance(blocks, PrefixBlocks) and blocks.block_tokens == 16
    assert [list(blocks[row]) for row in range(len(blocks))] == rows


@pytest.mark.parametrize("cell", [" 1", "1 ", "1  2", "1;2", "-1", "1 x", str(2**64), "9" * 5000])
def test_a_bad_list_of_ids_is_refused(tmp_path: Path, cell: str) -> None:
    assert "line 3, column x" in refusal(tmp_path / "t.csv", Ids(16), "0 1", cell, "5")


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("a,b", ""), ("b,a", ""), ("a,b,c_x", ""), ("c_x,a,c_x,b,o", ""), ("a", "column b: is missing"),
        ("a,b,d", "column 'd' is unknown"), ("a,b,a", "column a: occurs twice"),
        ("a,b,o,o", "column o: occurs twice"),
    ],
)  # fmt: skip
def test_columns_are_found_by_name(tmp_path: Path, header: str, part: str) -> None:
    path = tmp_path / "t.csv"
    names = header.split(",")
    path.write_text(f"{header}\n" + ",".join({"a": "1", "b": "2", "o": "3"}.get(name, "?") for name in names))
    fields = [Field("a", Whole()), Field("b", Whole()), Field("o", Whole(), required=False)]
    if part:
        with pytest.raises(TraceError, match=part):
            read_table(path, fields, lambda name: name.startswith("c_"))
        return
    table = read_table(path, fields, lambda name: name.startswith("c_"))
    expected: dict[str, Any] = {"a": [1], "b": [2]} | ({"o": [3]} if "o" in names else {})
    assert {name: column.tolist() for name, column in table.columns.items()} == expected
    assert table.place(0).line == 2 and table.rows == 1 and read_header(path) == tuple(names)


@loose
@given(cells=st.lists(st.text(st.sampled_from('ab", \t|'), max_size=6), min_size=1, max_size=4))
def test_lines_are_cut_as_the_csv_module_cuts_them(tmp_path: Path, cells: list[str]) -> None:
    path = tmp_path / "t.csv"
    line = ",".join(cells)
    path.write_text(line + "\n")
    try:
        expected = next(csv.reader([line], strict=True), [])
    except csv.Error:
        expected = None
    if not line.strip():
        return
    try:
        assert list(read_header(path)) == expected
    except TraceError:
        assert expected is None or path.read_text().strip() == ""
