"""``trace.columns`` and the common names: laws over files of three kinds, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.column_names import ARRIVALS, OURS, columns_of, known_columns
from traces.errors import TraceError
from traces.formats import writer_named
from traces.load import load
from traces.workload import COLUMNS, Workload

HEADER = ("arrival_s", "prompt_tokens", "output_tokens", "model", "session")
THEIRS = ("when", "n in", "n.out", "deployment", "user")
MAPPING = f"[{','.join(map(':'.join, zip(HEADER, THEIRS, strict=True)))}]"
ROWS = [(0.5, 700, 40, "a", "x"), (2.25, 300, 20, "b", "y"), (2.5, 90, 1, "a", "x")]
FLOATS = [(0.5, 700.0, 40.0), (1.5, 3.0, 5.0)]
KINDS = ("csv", "jsonl", "array", "parquet")


def made(folder: Path, kind: str, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    path = folder / f"t.{kind}"
    objects = [dict(zip(header, row, strict=True)) for row in rows]
    if kind == "csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    elif kind == "array":
        path.write_text(json.dumps(objects))
    else:
        columns = zip(header, zip(*rows, strict=True), strict=True)
        pq.write_table(pa.table({name: list(values) for name, values in columns}), path)
    return path


def values(workload: Workload) -> dict[str, Any]:
    """The columns as plain data."""
    columns = {column: getattr(workload, column) for column in COLUMNS}
    return {name: None if column is None else column.tolist() for name, column in columns.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_mapping_a_column_is_renaming_it(tmp_path: Path, kind: str) -> None:
    mapped = load("file", path=made(tmp_path, kind, THEIRS, ROWS), columns=MAPPING)
    assert values(mapped)["arrival_ns"] == [500_000_000, 2_250_000_000, 2_500_000_000]
    assert values(mapped)["model"] == ["a", "b", "a"]
    renamed = load("file", path=made(tmp_path, kind, HEADER, ROWS))
    assert values(mapped) == values(renamed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_columns_does_not_matter(tmp_path: Path, kind: str) -> None:
    forth = values(load("file", path=made(tmp_path, kind, THEIRS, ROWS), columns=MAPPING))
    back = made(tmp_path, kind, THEIRS[::-1], [row[::-1] for row in ROWS])
    assert values(load("file", path=back, columns=MAPPING.strip("[]"))) == forth


@given(
    gaps=st.lists(st.integers(0, 10**10), min_size=1, max_size=8),
    lengths=st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)), min_size=8, max_size=8),
    form=st.sampled_from(["csv", "parquet"]),
    unit=st.sampled_from(list(ARRIVALS)),
)
@settings(max_examples=30)
def test_what_is_written_and_renamed_is_read_by_its_mapping(
    tmp_path_factory: pytest.TempPathFactory,
    gaps: list[int],
    lengths: list[tuple[int, int]],
    form: str,
    unit: str,
) -> None:
    """Arrivals are written as ns: with another unit in the mapping they are so much later."""
    path = tmp_path_factory.mktemp("t") / "t"
    prompts, outputs = zip(*lengths[: len(gaps)], strict=True)
    scale = {"arrival_ns": 1, "arrival_us": 10**3, "arrival_ms": 10**6, "arrival_s": 10**9}[unit]
    small = [gap % (10**9 // len(gaps)) for gap in gaps]  # below rule 2 of times, and 31 years as s
    workload = Workload(
        arrival_ns=np.cumsum(small), prompt_tokens=prompts, output_tokens=outputs, name="w", source="drawn"
    )
    writer_named(form)(workload, path)
    if form == "csv":
        header, _, rest = path.read_text().partition("\n")
        path.write_text(header.replace("arrival_ns", "sent at!") + "\n" + rest)
    else:
        table = pq.read_table(path)
        names = ["sent at!" if name == "arrival_ns" else name for name in table.column_names]
        pq.write_table(table.rename_columns(names), path)
    again = load("file", path=path, columns=f"[{unit}:sent at!]")
    assert again.arrival_ns.tolist() == (workload.arrival_ns * scale).tolist()
    assert again.prompt_tokens.tolist() == list(prompts) and again.output_tokens.tolist() == list(outputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("[start:when]", f"'start' is no column of ours: write one of {', '.join(OURS)} or prefix_N"),
        ("[arrival_s:then]", "has no column 'then': write one of 'when', 'n in', 'n.out', 'deployment'"),
        ("[arrival_s]", r"'arrival_s' is no pair: write trace.columns=\[arrival:THEIRS,prompt"),
        ("[arrival_s:when,arrival_s:user]", "'arrival_s:user' names a column again: write each once"),
        ("[arrival_s:when,prompt_tokens:when]", "names a column again"),
        ("[arrival_s:when,arrival_ms:user]", "are both arrivals: write one of them"),
        ("[arrival_s:when]", "no column for prompt_tokens and output_tokens .its columns are 'when', 'n in'"),
        ("[]", "'' is no pair"),
    ],
)  # fmt: skip
def test_unknown_names_on_either_side_are_refused(
    tmp_path: Path, kind: str, columns: str, sentence: str
) -> None:
    path = made(tmp_path, kind, THEIRS, ROWS)
    refuses(TraceError, sentence, load, "file", path=path, columns=columns)


def test_columns_do_not_apply_to_a_format_that_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n")
    refuses(
        TraceError,
        "trace.columns=.* does not apply",
        load,
        "file",
        path=path,
        format="azure",
        columns="[a:b]",
    )
    chosen = load("file", path=path, columns="[output_tokens:ContextTokens,prompt_tokens:GeneratedTokens]")
    assert chosen.output_tokens.tolist() == [374] and chosen.prompt_tokens.tolist() == [44]


@pytest.mark.parametrize("kind", KINDS)
def test_zero_lengths_are_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    rows = [(0.5, 700, 40), (1.5, 0, 3), (2.5, 3, 0), (3.5, 5, 6)]
    workload = load("file", path=made(tmp_path, kind, ("ts", "isl", "osl"), rows))
    assert workload.prompt_tokens.tolist() == [700, 5] and workload.rows_read == 4
    assert workload.dropped == {"zero prompt tokens": 1, "zero output tokens": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_lengths_may_be_written_as_floats(tmp_path: Path, kind: str) -> None:
    workload = load("file", path=made(tmp_path, kind, ("ts", "isl", "osl"), FLOATS))
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([700, 3], [40, 5])
    half = made(tmp_path, kind, ("ts", "isl", "osl"), [(0.5, 700.5, 40.0)])
    refuses(TraceError, "isl.*(fraction|whole)", load, "file", path=half)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_log_with_models_in_some_rows_has_none(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path, kind, ("ts", "isl", "osl", "model"), [(0.5, 7, 4, "a"), (1.5, 6, 3, "")])
    if kind == "parquet":
        path = made(tmp_path, kind, ("ts", "isl", "osl", "model"), [(0.5, 7, 4, "a"), (1.5, 6, 3, None)])
    workload = load("file", path=path)
    assert workload.model is None and "models not read: some rows name none" in workload.labels


def test_lengths_without_times_are_drawn_at_a_rate(tmp_path: Path) -> None:
    path = made(tmp_path, "csv", ("isl", "osl"), [(7, 4)] * 5)
    refuses(TraceError, r"no column for arrival .*trace.columns=\[arrival:COLUMN\]", load, "file", path=path)
    drawn = load("file", path=path, rate_per_s=2.0)
    assert len(drawn) == 5 and drawn.labels[-1] == "no arrivals in the source: drawn at 2/s"
    timed = made(tmp_path, "csv", ("ts", "isl", "osl"), [(0.5, 7, 4)])
    refuses(TraceError, "has arrivals of its own .ts.: leave out", load, "file", path=timed, rate_per_s=2.0)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("@timestamp", "arrival"), ("Start Time", "arrival"), ("arrivedAt", "arrival"),
        ("time_ns", "arrival"),
        ("endTime", None), ("end_timestamp", None), ("num_prefill_tokens", "prompt_tokens"),
        ("total_tokens", None), ("cached_tokens", None), ("usage.completion_tokens", "output_tokens"),
        ("ttft_ms", None), ("max_tokens", None), ("tokens", None), ("time to first token", None),
    ],
)  # fmt: skip
def test_common_names_are_those_of_times_and_lengths_alone(name: str, ours: str | None) -> None:
    assert any(mark.startswith(f"={ours}") for mark in known_columns([name])) == (ours is not None)


def test_the_unit_at_the_end_of_a_name_is_that_of_its_values() -> None:
    for name, unit in (
        ("timestamp_ms", "ms"),
        ("startTimeUnixNano", "ns"),
        ("ts", None),
        ("arrived_at", "s"),
    ):
        header = (name, "isl", "osl")
        assert columns_of(header, None, Path("t")).unit == unit
        assert columns_of(header, f"[arrival_us:{name}]", Path("t")).unit == "us"
