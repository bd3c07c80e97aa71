"""Mooncake traces: read exactly, written so that they read back, and refused in one sentence."""

import gzip
import json
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.importers.mooncake import BLOCK_TOKENS, read_mooncake, write_mooncake
from traces.workload import Workload

ROWS = [
    {"timestamp": 0, "input_length": 700, "output_length": 50, "hash_ids": [0, 1]},
    {"timestamp": 1500, "input_length": 1024, "output_length": 3, "hash_ids": [0, 2]},
    {"timestamp": 1500, "input_length": 5, "output_length": 1, "hash_ids": [7]},
]


def written(folder: Path, rows: list[dict[str, Any]], name: str = "trace.jsonl") -> Path:
    path = folder / name
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def changed(at: int, **fields: Any) -> list[dict[str, Any]]:
    """ROWS with some keys of one row set, or taken away where the value is None."""
    rows = [dict(row) for row in ROWS]
    rows[at] |= fields
    rows[at] = {key: value for key, value in rows[at].items() if value is not None}
    return rows


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_reads_times_lengths_and_blocks(tmp_path: Path, name: str) -> None:
    workload = read_mooncake(written(tmp_path, ROWS, name))
    assert workload.arrival_ns.tolist() == [0, 1_500_000_000, 1_500_000_000]
    assert workload.prompt_tokens.tolist() == [700, 1024, 5]
    assert workload.output_tokens.tolist() == [50, 3, 1]
    assert workload.prefix is not None and workload.prefix.block_tokens == 512
    assert [workload.prefix[row] for row in range(3)] == [(0, 1), (0, 2), (7,)]
    assert (workload.name, workload.rows_read, workload.labels) == ("trace", 3, ("times in ms",))
    assert workload.source.startswith(f"{name} sha256=")
    assert workload.model is workload.session is workload.priority is workload.max_new_tokens is None


def test_arrivals_count_from_the_run_start_and_decimals_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    stamps = ["27", "27.000001", "30.1", "1e3", "1000.0000005", "1000.0000015", "123456789012.345678"]
    stamps[:0] = ["0", "1e-99999999999", "0.0000005", "0.00000050000000000000000000000000000000000001"]
    path.write_text(
        "".join(f'{{"timestamp": {at}, "input_length": 1, "output_length": 1}}\n' for at in stamps)
    )
    expected = [
        round(Fraction(at) * 10**6) if "99" not in at else 0 for at in stamps
    ]  # ties to even, as in the reader
    assert read_mooncake(path).arrival_ns.tolist() == expected
    assert expected[2:7] == [0, 1, 27_000_000, 27_000_001, 30_100_000]


def test_rows_without_output_are_dropped_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, changed(1, output_length=0))
    workload = read_mooncake(path)
    assert workload.output_tokens.tolist() == [50, 1]
    assert workload.dropped == {"zero output tokens": 1} and workload.rows_read == 3
    assert workload.prefix is not None and workload.prefix[1] == (7,)
    first = read_mooncake(path, limit=2)
    assert (len(first), first.rows_read, first.labels) == (1, 2, ("first 2 of 3 requests", "times in ms"))
    assert read_mooncake(path, limit=9).labels == ("times in ms",)


def test_optional_keys(tmp_path: Path) -> None:
    rows = [row | {"model": "m", "priority": -1, "max_new_tokens": 9, "extra": [1]} for row in ROWS]
    rows[0]["session_id"], rows[1]["session_id"] = 17, ""
    workload = read_mooncake(written(tmp_path, rows), name="mine")
    assert workload.name == "mine"
    assert workload.model is not None and workload.model.tolist() == ["m"] * 3
    assert workload.session is not None and workload.session.tolist() == ["17", None, None]
    assert workload.priority is not None and workload.priority.tolist() == [-1] * 3
    assert workload.max_new_tokens is not None and workload.max_new_tokens.tolist() == [9] * 3


def test_no_hash_ids_at_all_and_other_block_sizes(tmp_path: Path) -> None:
    bare = [{key: value for key, value in row.items() if key != "hash_ids"} for row in ROWS]
    assert read_mooncake(written(tmp_path, bare)).prefix is None
    small = [{"timestamp": 0, "input_length": 17, "output_length": 1, "hash_ids": [3, 4]}]
    workload = read_mooncake(written(tmp_path, small), block_tokens=16)
    assert workload.prefix is not None and workload.prefix.block_tokens == 16


def test_fewer_ids_are_taken_when_asked(tmp_path: Path) -> None:
    path = written(tmp_path, changed(0, hash_ids=[0], input_length=1100))
    workload = read_mooncake(path, partial_prefix=True)
    assert workload.prefix is not None and workload.prefix[0] == (0,)
    refuses(TraceError, "write 3, or the size of its blocks as trace.block_tokens=", read_mooncake, path)


@pytest.mark.parametrize(
    ("at", "fields", "sentence"),
    [
        (1, {"timestamp": None}, "line 2, key timestamp: the value is missing: write the arrival in ms"),
        (1, {"timestamp": "5"}, "line 2, key timestamp: '5' is not a number"),
        (1, {"timestamp": True}, "line 2, key timestamp: true is not a number"),
        (
            1,
            {"timestamp": -1},
            "key timestamp: -1 ms is negative or too late: write the time since the trace's start",
        ),
        (2, {"timestamp": 1_700_000_000_000}, "too late: write the time since the trace's start"),
        (0, {"input_length": 0}, "line 1, key input_length: 0 is out of range: write a whole number from 1"),
        (0, {"input_length": 12.0}, "line 1, key input_length: 12.0 is written as a fraction: write 12"),
        (0, {"input_length": 12.5}, "key input_length: 12.5 is not a whole number"),
        (
            0,
            {"input_length": 10_000_001},
            "10000001 is out of range: write a whole number from 1 to 10000000",
        ),
        (0, {"input_length": False}, "false is not a whole number"),
        (0, {"output_length": -1}, "key output_length: -1 is out of range"),
        (0, {"output_length": 10**50}, "is out of range"),
        (0, {"output_length": None}, "key output_length: the value is missing"),
        (1, {"hash_ids": None}, "line 2, key hash_ids: the value is missing, but line 1 has one"),
        (1, {"hash_ids": 5}, "line 2, key hash_ids: 5 is not a list"),
        (1, {"hash_ids": [1, 1.0]}, "key hash_ids: 1.0 is not a block id"),
        (1, {"hash_ids": [1, True]}, "key hash_ids: true is not a block id"),
        (1, {"hash_ids": [1, -2]}, "key hash_ids: -2 is not a block id"),
        (1, {"hash_ids": [1, 2**64]}, "is not a block id: write whole numbers from 0"),
        (1, {"hash_ids": [1, 2, 3]}, "3 ids do not fit 1024 tokens in blocks of 512: write 2"),
        (
            1,
            {"model": "m"},
            "line 1, key model: the value is missing, but line 2 has one: write one in every",
        ),
        (1, {"priority": 1}, "line 1, key priority: the value is missing, but line 2 has one"),
        (1, {"priority": "high"}, "line 2, key priority: 'high' is not a whole number"),
        (1, {"max_new_tokens": 0}, "line 2, key max_new_tokens: 0 is out of range"),
        (1, {"session_id": ["a"]}, "line 2, key session_id: a list is not a name"),
        (1, {"session_id": "\ud800"}, "line 2, key session_id: the name has half a surrogate pair"),
    ],
)
def test_refuses_in_one_sentence(tmp_path: Path, at: int, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_mooncake(written(tmp_path, changed(at, **fields)))
    assert sentence in str(caught.value)
    assert "trace.jsonl" in str(caught.value) and "\n" not in str(caught.value)


def test_refuses_a_trace_without_any_output_and_a_bad_limit(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="every request is left out"):
        read_mooncake(written(tmp_path, [ROWS[0] | {"output_length": 0}]))
    refuses(TraceError, r"trace\.limit=0", read_mooncake, written(tmp_path, ROWS), limit=0)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(st.integers(1, 6))

    def column(least: int, most: int) -> Any:
        return np.array(draw(st.lists(st.integers(least, most), min_size=rows, max_size=rows)), np.int64)

    prompt = column(1, 3000)
    has = draw(st.sampled_from(["none", "full", "part"]))
    blocks = [-(-int(tokens) // BLOCK_TOKENS) for tokens in prompt]
    wanted = [draw(st.integers(0, most)) if has == "part" else most for most in blocks]
    ids = [draw(st.lists(st.integers(0, 2**40), min_size=n, max_size=n)) for n in wanted]
    sessions = draw(st.lists(st.none() | names, min_size=rows, max_size=rows))
    return Workload(
        arrival_ns=np.sort(column(0, 10**15)),
        prompt_tokens=prompt,
        output_tokens=column(1, 3000),
        name="drawn",
        source="drawn",
        prefix=None if has == "none" else PrefixBlocks.of(ids, BLOCK_TOKENS),
        model=draw(st.none() | st.lists(names, min_size=rows, max_size=rows).map(Names.of)),
        session=Names.of(sessions) if any(sessions) else None,
        priority=draw(st.sampled_from([None, column(-(2**63), 2**63 - 1)])),
        max_new_tokens=draw(st.sampled_from([None, column(1, 3000)])),
        rows_read=rows,
    )


@given(workload=workloads(), zipped=st.booleans())
@settings(max_examples=30)
def test_exact_files_read_back(workload: Workload, zipped: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("drawn.jsonl.gz" if zipped else "drawn.jsonl")
        write_mooncake(workload, path, exact=True)
        back = read_mooncake(path)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "max_new_tokens"):
        ours, theirs = getattr(workload, column), getattr(back, column)
        assert (ours is None) == (theirs is None) and (ours is None or ours.tolist() == theirs.tolist())
    for column in ("model", "session"):
        ours, theirs = getattr(workload, column), getattr(back, column)
        assert (None if ours is None else ours.tolist()) == (None if theirs is None else theirs.tolist())
    assert back.prefix is not None
    known = [() if workload.prefix is None else workload.prefix[row] for row in range(len(workload))]
    added = [back.prefix[row][len(known[row]) :] for row in range(len(workload))]
    assert all(back.prefix[row][: len(known[row])] == known[row] for row in range(len(workload)))
    new = [block for blocks in added for block in blocks]
    assert len(set(new)) == len(new) and not set(new) & {block for blocks in known for block in blocks}


@given(workload=workloads())
@settings(max_examples=30)
def test_usual_files_hold_whole_ms(workload: Workload) -> None:
    with TemporaryDirectory() as folder:
        losses = write_mooncake(workload, Path(folder) / "drawn.jsonl")
        rows = [json.loads(line) for line in (Path(folder) / "drawn.jsonl").read_text().splitlines()]
        back = read_mooncake(Path(folder) / "drawn.jsonl")
    assert all(type(row["timestamp"]) is int for row in rows)
    moved = back.arrival_ns - workload.arrival_ns
    assert (np.abs(moved) <= 500_000).all()
    count = int((moved != 0).sum())
    said = f"{count} of {len(workload)} timestamps rounded to whole ms"
    assert (said in losses) == (count > 0)
    assert all(len(row["hash_ids"]) == -(-row["input_length"] // 512) for row in rows)


def test_says_what_the_format_does_not_hold(tmp_path: Path) -> None:
    workload = Workload(
        arrival_ns=np.array([1]),
        prompt_tokens=np.array([600]),
        output_tokens=np.array([2]),
        name="n",
        source="s",
        images=np.array([1]),
        source_duration_ns=np.array([-1]),
        labels=("halved",),
        dropped={"why": 1},
        rows_read=2,
    )
    path = tmp_path / "out.jsonl"
    assert write_mooncake(workload, path) == (
        "1 of 1 timestamps rounded to whole ms",
        "1 of 1 rows got block ids that no other row has",
        "images written as a key that is not read back",
        "source_duration_ns written as a key that is not read back",
        "labels not written",
        "dropped not written",
    )
    assert json.loads(path.read_text()) == {
        "timestamp": 0,
        "input_length": 600,
        "output_length": 2,
        "hash_ids": [0, 1],
        "images": 1,
        "source_duration_ns": -1,
    }


def tiny(prefix: PrefixBlocks | None = None) -> Workload:
    return Workload(
        arrival_ns=np.array([0]),
        prompt_tokens=np.array([5]),
        output_tokens=np.array([1]),
        name="tiny",
        source="made",
        prefix=prefix,
    )


def test_writing_replaces_only_when_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_mooncake(tiny(), path)
    refuses(TraceError, "exists: write another name, or overwrite=true", write_mooncake, tiny(), path)
    write_mooncake(tiny(), path, overwrite=True)
    refuses(TraceError, "cannot be written", write_mooncake, tiny(), tmp_path / "no" / "out.jsonl")
    refuses(TraceError, "cannot be written", write_mooncake, tiny(), tmp_path, overwrite=True)
    assert [found.name for found in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        (PrefixBlocks.of([[1]], 16), "prefix blocks of 16 tokens and the Mooncake format blocks of 512"),
        (PrefixBlocks.of([[1, 2]], 512), "row 0 has 2 prefix blocks and its prompt needs only 1"),
    ],
)
def test_refuses_blocks_the_format_cannot_hold(tmp_path: Path, prefix: PrefixBlocks, sentence: str) -> None:
    refuses(TraceError, sentence, write_mooncake, tiny(prefix), tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_new_ids_find_room_above_the_known_ones(tmp_path: Path) -> None:
    workload = Workload(
        arrival_ns=np.array([0, 0]),
        prompt_tokens=np.array([5, 5]),
        output_tokens=np.array([1, 1]),
        name="high",
        source="made",
        prefix=PrefixBlocks.of([[2**63 - 1], []], 512),
    )
    refuses(TraceError, "write smaller ones", write_mooncake, workload, tmp_path / "out.jsonl")


def test_an_arrival_that_would_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    late = Workload(
        arrival_ns=[2 * 10**18], prompt_tokens=[1], output_tokens=[1], name="late", source="by hand"
    )  # type: ignore[arg-type]
    refuses(TraceError, r"late.*write it as \.parquet", write_mooncake, late, tmp_path / "late.jsonl")
    assert list(tmp_path.iterdir()) == []
