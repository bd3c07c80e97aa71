"""Parquet: everything a workload has comes back; other hands' files are judged; damage is one sentence."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.importers.parquet import read_parquet, write_parquet
from traces.workload import COLUMNS, Workload

THREE: dict[str, Any] = {"arrival_ns": [0, 5], "prompt_tokens": [7, 8], "output_tokens": [1, 2]}


def written(folder: Path, columns: dict[str, Any], about: dict[str, Any] | None = None) -> Path:
    """A file as another program would write it; ``about`` is its metadata, bytes or values for JSON."""
    path = folder / "trace.parquet"
    table = pa.table(columns)
    if about:
        texts = {
            key: value if isinstance(value, bytes) else json.dumps(value) for key, value in about.items()
        }
        table = table.replace_schema_metadata(texts)
    pq.write_table(table, path)
    return path


def refusal(path: Path, **options: Any) -> str:
    return refuses(TraceError, re.escape(path.name), read_parquet, path, **options)


def values_of(column: Any) -> Any:
    """A column of any kind as plain lists."""
    if isinstance(column, PrefixBlocks):
        return column.block_tokens, [column[row] for row in range(len(column))]
    return column if column is None else column.tolist()


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(st.integers(1, 6))

    def column(least: int, most: int) -> Any:
        return np.array(draw(st.lists(st.integers(least, most), min_size=rows, max_size=rows)), np.int64)

    def maybe(value: Any) -> Any:
        return draw(st.sampled_from([None, value]))

    def listed(of: Any) -> Any:
        return draw(st.lists(of, min_size=rows, max_size=rows))

    return Workload(
        arrival_ns=np.sort(column(0, 2**62)),
        prompt_tokens=column(1, 10**7),
        output_tokens=column(1, 10**7),
        name=draw(names.filter(bool)),
        source=draw(names),
        max_new_tokens=maybe(column(1, 10**7)),
        model=maybe(Names.of(listed(names))),
        priority=maybe(column(-(2**63), 2**63 - 1)),
        session=maybe(Names.of(listed(st.none() | names))),
        prefix=maybe(PrefixBlocks.of(listed(st.lists(st.integers(0, 2**63 - 1), max_size=3)), 16)),
        images=maybe(column(0, 99)),
        source_duration_ns=maybe(column(-1, 2**62)),
        labels=tuple(draw(st.lists(names, max_size=2))),
        dropped=draw(st.dictionaries(names, st.integers(0, 2**40), max_size=2)),
        rows_read=draw(st.integers(0, 2**40)),
    )


@given(workload=workloads())
@settings(max_examples=30)
def test_everything_comes_back(workload: Workload) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.parquet"
        write_parquet(workload, path)
        back = read_parquet(path)
    for column in COLUMNS:
        assert values_of(getattr(back, column)) == values_of(getattr(workload, column)), column
    for field in ("name", "source", "labels", "dropped", "rows_read"):
        assert getattr(back, field) == getattr(workload, field)


def full() -> Workload:
    return Workload(
        arrival_ns=np.array([0, 10, 10]),
        prompt_tokens=np.array([5, 600, 7]),
        output_tokens=np.array([1, 2, 3]),
        name="full",
        source="made",
        model=Names.of(["m", "n", "m"]),
        session=Names.of([None, "s", None]),
        prefix=PrefixBlocks.of([[1], [], [1, 2]], 4),
        labels=("one",),
        dropped={"why": 4},
        rows_read=7,
    )


def test_the_file_has_plain_columns_that_others_can_read(tmp_path: Path) -> None:
    write_parquet(full(), tmp_path / "full.parquet")
    table = pq.read_table(tmp_path / "full.parquet")
    assert table.column_names == [
        "arrival_ns",
        "prompt_tokens",
        "output_tokens",
        "prefix",
        "model",
        "session",
    ]
    assert table["session"].to_pylist() == [None, "s", None]
    assert table["prefix"].to_pylist() == [[1], [], [1, 2]]
    assert table.schema.field("arrival_ns").type == pa.int64()
    about = {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()}
    assert about == {
        "servetwin.name": "full",
        "servetwin.source": "made",
        "servetwin.labels": ["one"],
        "servetwin.dropped": {"why": 4},
        "servetwin.rows_read": 7,
        "servetwin.prefix_block_tokens": 4,
    }


def test_rows_taken_away_leave_no_trace_of_their_words(tmp_path: Path) -> None:
    write_parquet(full().taking(np.array([1]), "one row"), tmp_path / "one.parquet")
    back = read_parquet(tmp_path / "one.parquet")
    assert back.model is not None and back.model.tolist() == ["n"]
    assert back.labels == ("one", "one row")


def test_three_columns_of_another_hand_suffice(tmp_path: Path) -> None:
    path = written(tmp_path, THREE | {"output_tokens": pa.array([1, 2], pa.uint8())})
    workload = read_parquet(path)
    assert workload.arrival_ns.tolist() == [0, 5] and workload.output_tokens.tolist() == [1, 2]
    assert (workload.name, workload.rows_read, workload.labels) == ("trace", 2, ())
    assert workload.source.startswith("trace.parquet sha256=")
    assert read_parquet(path, name="mine").name == "mine"
    assert read_parquet(path, limit=1).labels == ("first 1 of 2 requests",)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_names_of_any_text_type(tmp_path: Path, kind: Any) -> None:
    columns = THREE | {"session": pa.array([None, "a"], kind), "model": pa.array(["b", "b"], kind)}
    workload = read_parquet(written(tmp_path, columns))
    assert workload.session is not None and workload.session.tolist() == [None, "a"]
    assert workload.model is not None and workload.model.tolist() == ["b", "b"]


def test_names_are_one_column_over_many_row_groups(tmp_path: Path) -> None:
    rows = 500
    path = tmp_path / "groups.parquet"
    words = [f"s{row % 7}" if row % 3 else None for row in range(rows)]
    table = pa.table(
        {
            "arrival_ns": range(rows),
            "prompt_tokens": [1] * rows,
            "output_tokens": [1] * rows,
            "session": pa.array(words).dictionary_encode(),
            "prefix": [[row] * (row % 3) for row in range(rows)],
        }
    ).replace_schema_metadata({"servetwin.prefix_block_tokens": "16"})
    pq.write_table(table, path, row_group_size=64)
    workload = read_parquet(path)
    assert workload.session is not None and workload.session.tolist() == words
    assert workload.prefix is not None and workload.prefix[5] == (5, 5)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"arrival_ns": [1]},
            "has no column prompt_tokens: write at least arrival_ns, prompt_tokens, output",
        ),
        (THREE | {"cost": [1, 2]}, "column 'cost' is unknown: keep only arrival_ns, prompt_tokens"),
        (THREE | {"prompt_tokens": [1.0, 2.0]}, "column prompt_tokens holds double: write int64"),
        (THREE | {"prompt_tokens": [True, True]}, "column prompt_tokens holds bool: write int64"),
        (THREE | {"prompt_tokens": ["1", "2"]}, "column prompt_tokens holds string: write int64"),
        (THREE | {"prompt_tokens": [1, None]}, "column prompt_tokens: row 1 (the first is 0) is null: write"),
        (THREE | {"prompt_tokens": [None, None]}, "column prompt_tokens: row 0 (the first is 0) is null"),
        (
            THREE | {"priority": pa.array([1, 2**63], pa.uint64())},
            "column priority has numbers beyond int64: write smaller ones",
        ),
        (
            THREE | {"prompt_tokens": [1, 10**7 + 1]},
            "prompt_tokens is 10000001 in row 1: write at most 10000000",
        ),
        (THREE | {"prompt_tokens": [1, 0]}, "prompt_tokens is 0 in row 1: write at least 1"),
        (THREE | {"arrival_ns": [-1, 4]}, "arrival_ns starts before 0"),
        (
            THREE | {"model": ["a", None]},
            "column model: row 1 (the first is 0) is null: name a model in every row",
        ),
        (THREE | {"session": [1, 2]}, "column session holds int64: write texts"),
        (THREE | {"prefix": [1, 2]}, "column prefix holds int64: write lists of int64"),
        (THREE | {"prefix": [[1.5], []]}, "column prefix holds list<element: double>: write lists of int64"),
        (THREE | {"prefix": [[1], None]}, "column prefix: row 1 (the first is 0) is null"),
        (
            THREE | {"prefix": [[1], []]},
            "does not give the size of its prefix blocks: write the metadata key servetwin.",
        ),
        ({column: pa.array([], pa.int64()) for column in THREE}, "has no requests: give it at least one"),
    ],
)
def test_refuses_in_one_sentence(tmp_path: Path, columns: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, columns))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("name", "", "metadata key servetwin.name does not hold a text: write it as JSON"),
        ("source", 5, "metadata key servetwin.source does not hold a text"),
        ("labels", ["a", 1], "metadata key servetwin.labels does not hold a list of texts"),
        ("dropped", {"a": -1}, "metadata key servetwin.dropped does not hold numbers of rows by reason"),
        ("dropped", [1], "metadata key servetwin.dropped does not hold numbers of rows"),
        ("rows_read", True, "metadata key servetwin.rows_read does not hold a whole number"),
        (
            "rows_read",
            b"\xff",
            "metadata key servetwin.rows_read: byte 1 is not UTF-8 text: write it as JSON",
        ),
        ("rows_read", b"{", "metadata key servetwin.rows_read: it is not JSON: expecting property name"),
        ("prefix_block_tokens", 0, "key servetwin.prefix_block_tokens does not hold a whole number from 1"),
    ],
)
def test_refuses_wrong_metadata(tmp_path: Path, key: str, value: Any, sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, THREE, {f"servetwin.{key}": value}))


def test_refuses_wrong_prefix_ids(tmp_path: Path) -> None:
    about = {"servetwin.prefix_block_tokens": 16}
    path = written(tmp_path, THREE | {"prefix": [[1, None], []]}, about)
    assert "column prefix has a null inside a list: write whole numbers" in refusal(path)
    path = written(tmp_path, THREE | {"prefix": [[1, -1], []]}, about)
    assert "column prefix: prefix blocks need block_tokens above 0 and ids of at least 0" in refusal(path)


def test_refuses_a_column_twice_and_what_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table([[1], [1], [1], [1]], names=[*THREE, "arrival_ns"]), path)
    assert "column arrival_ns occurs twice: keep one" in refusal(path)
    for data in (b"", b"PAR1", b"PAR1" * 3, b"a,b\n1,2\n"):
        path.write_bytes(data)
        assert "is not a valid Parquet file (" in refusal(path)
    assert "does not exist" in refusal(tmp_path / "none.parquet")
    assert "is a directory" in refusal(tmp_path)


def test_writing_replaces_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "full.parquet"
    write_parquet(full(), path)
    with pytest.raises(TraceError, match="exists: write another name, or overwrite=true"):
        write_parquet(full(), path)
    first = path.read_bytes()
    write_parquet(full(), path, overwrite=True)
    assert path.read_bytes() == first
    with pytest.raises(TraceError, match="cannot be written"):
        write_parquet(full(), tmp_path / "no" / "full.parquet")
    assert [found.name for found in tmp_path.iterdir()] == ["full.parquet"]


def test_a_changed_byte_in_the_rows_never_changes_a_value(tmp_path: Path) -> None:
    """Every byte of the prompt lengths in turn: their pages carry checksums."""
    path = tmp_path / "full.parquet"
    write_parquet(full(), path)
    sound = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    refused = 0
    for at in range(first, first + column.total_compressed_size):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        try:
            assert read_parquet(path).prompt_tokens.tolist() == [5, 600, 7]
        except TraceError:
            refused += 1
    assert refused > column.total_compressed_size // 4


@given(data=st.data())
@settings(max_examples=33)
def test_damage_never_changes_a_row_in_silence(data: st.DataObject) -> None:
    """Pages carry checksums; the footer has none, so there a change must agree with a plain reading."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "full.parquet"
        write_parquet(full(), path)
        damaged = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) // 2]))])
        try:
            workload = read_parquet(path)
        except TraceError as error:
            assert "\n" not in str(error)
            return
        plain = pq.read_table(path, use_threads=False).to_pydict()
    for column in plain:
        ours = values_of(getattr(workload, column))
        assert ([list(row) for row in ours[1]] if column == "prefix" else ours) == plain[column]


def test_columns_that_would_fill_the_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.reading.FREE_BYTES", 1 << 20)
    same = np.ones(300_000, np.int64)
    path = written(tmp_path, dict.fromkeys(THREE, same))
    assert path.stat().st_size < 10_000
    with monkeypatch.context() as unread:
        unread.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("its columns were read"))
        assert "unpacks to 7200000 bytes of columns" in refusal(path)
    word = pa.array(["x" * 300_000] * 20)
    path = written(tmp_path, {name: np.arange(1, 21) for name in THREE} | {"model": word})
    assert "keep fewer rows or shorter names" in refusal(path)
    monkeypatch.undo()
    assert len(read_parquet(path)) == 20


def test_a_trace_of_many_rows_of_few_values_is_read(tmp_path: Path) -> None:
    """Whole seconds, two models, equal lengths: what packs best among traces."""
    rows = np.arange(400_000)
    columns = {"arrival_ns": rows // 3 * 10**9, "prompt_tokens": rows * 0 + 5, "output_tokens": rows * 0 + 1}
    path = written(tmp_path, columns | {"model": pa.array(np.where(rows % 2, "gpt", "llama"))})
    assert len(read_parquet(path)) == len(rows)


def test_rows_out_of_order_are_sorted_with_a_label(tmp_path: Path) -> None:
    pq.write_table(pa.table(THREE | {"arrival_ns": [5, 4], "session": ["a", "b"]}), tmp_path / "t.parquet")
    workload = read_parquet(tmp_path / "t.parquet")
    assert workload.arrival_ns.tolist() == [4, 5] and workload.session is not None
    assert workload.session.tolist() == ["b", "a"]
    assert workload.labels == ("rows sorted by arrival: 1 arrived before the row above",)
