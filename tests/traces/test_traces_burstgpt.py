"""The BurstGPT reader: three releases, what it leaves out, what it refuses."""

import csv
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.damage import damaged, edit, line_edit
from tests.worlds.refusals import refuses
from traces import reading
from traces.errors import TraceError
from traces.importers.burstgpt import (
    DROPPED_FAILED,
    DROPPED_NO_PROMPT,
    DROPPED_WRONG_TOTAL,
    LOG_TYPES,
    MAX_WRONG_TOTALS,
    read_burstgpt,
)
from traces.workload import MAX_TOKENS

HEADER_1 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
HEADER_3 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
ROWS_1 = [
    "5,ChatGPT,472,18,490,Conversation log",
    "45,ChatGPT,1087,230,1317,Conversation log",
    "45,GPT-4,417,0,417,API log",
    "118,GPT-4,417,276,693,API log",
]
ROWS_3 = [
    "19440110.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,906,446,1352,Conversation log",
    "19440110.5,,,ChatGPT,10,20,30,API log",
    "19440111.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,0.25,GPT-4,5,6,11,Conversation log",
]
NS = 10**9


def written(folder: Path, *lines: str) -> Path:
    path = folder / "burst.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def refusal(path: Path, **options: Any) -> str:
    return refuses(TraceError, "", read_burstgpt, path, **options)


def test_release_1_by_hand(tmp_path: Path) -> None:
    workload = read_burstgpt(written(tmp_path, HEADER_1, *ROWS_1))
    assert workload.arrival_ns.tolist() == [0, 40 * NS, 113 * NS]
    assert workload.prompt_tokens.tolist() == [472, 1087, 417]
    assert workload.output_tokens.tolist() == [18, 230, 276]
    assert workload.model is not None and workload.model.tolist() == ["ChatGPT", "ChatGPT", "GPT-4"]
    assert (workload.session, workload.source_duration_ns) == (None, None)
    assert workload.dropped == {DROPPED_FAILED: 1} and workload.rows_read == 4
    assert (
        workload.labels == ("times in s",)
        and workload.name == "burst"
        and "burst.csv sha256=" in workload.source
    )


def test_release_3_by_hand(tmp_path: Path) -> None:
    workload = read_burstgpt(written(tmp_path, HEADER_3, *ROWS_3))
    assert workload.arrival_ns.tolist() == [0, NS // 2, NS]
    assert workload.session is not None and workload.source_duration_ns is not None
    assert workload.session.tolist() == [ROWS_3[0].split(",")[1], None, ROWS_3[2].split(",")[1]]
    assert workload.source_duration_ns.tolist() == [43 * NS, -1, NS // 4]


def test_choices_are_labelled_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER_1, *ROWS_1)
    api = read_burstgpt(path, log_type="api")
    assert (api.arrival_ns.tolist(), api.labels) == ([113 * NS], ("times in s", "only log type API log"))
    assert api.dropped == {"log type is not API log": 2, DROPPED_FAILED: 1}
    chat = read_burstgpt(path, model="ChatGPT", log_type="conversation", limit=3)
    assert len(chat) == 2 and chat.rows_read == 3 == len(chat) + sum(chat.dropped.values())
    assert chat.labels == (
        "first 3 of 4 requests", "times in s", "only log type Conversation log", "only model ChatGPT",
    )  # fmt: skip
    assert chat.model is not None and chat.model.words == ("ChatGPT",)


def test_choices_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER_1, *ROWS_1)
    assert "write conversation or api" in refusal(path, log_type="chat")
    assert "write one of ChatGPT, GPT-4" in refusal(path, model="GPT-5")
    assert "every request is left out" in refusal(path, model="GPT-4", limit=2)
    assert "trace.limit=0" in refusal(path, limit=0)


def test_few_wrong_totals_are_counted_and_many_refused(tmp_path: Path) -> None:
    good = [f"{i},ChatGPT,5,6,11,API log" for i in range(198)]
    wrong = ["198,ChatGPT,5,6,12,API log", "198,GPT-4,0,6,6,API log", "198,GPT-4,5,0,0,API log"]
    workload = read_burstgpt(written(tmp_path, HEADER_1, *good, *wrong))
    assert workload.dropped == {DROPPED_FAILED: 1, DROPPED_NO_PROMPT: 1, DROPPED_WRONG_TOTAL: 1}
    assert len(workload) == 198 and MAX_WRONG_TOTALS > 1 / 201
    sentence = refusal(written(tmp_path, HEADER_1, *good, *[wrong[0]] * 3))
    assert "line 200, column Total tokens" in sentence and "3 of 201 rows" in sentence
    swapped = HEADER_1.replace("Request", "X").replace("Total", "Request").replace("X", "Total")
    assert "column Total tokens" in refusal(written(tmp_path, swapped, *ROWS_1))


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("5,ChatGPT,472,18,490", ["5 fields are too few"]),
        ("5,ChatGPT,472,18,490,Conversation", ["line 3, column Log Type", "'Conversation' is not a log"]),
        ("5,,472,18,490,API log", ["line 3, column Model", "empty"]),
        ("5,ChatGPT,472.5,18,490,API log", ["line 3, column Request tokens", "fraction"]),
        ("x,ChatGPT,472,18,490,API log", ["line 3, column Timestamp", "not a number"]),
        ("5,ChatGPT,472,,490,API log", ["line 3, column Response tokens", "value is missing"]),
    ],
)
def test_a_bad_row_is_explained(tmp_path: Path, row: str, parts: list[str]) -> None:
    sentence = refusal(written(tmp_path, HEADER_1, ROWS_1[0], row))
    for part in parts:
        assert part in sentence


VALID = ["\n".join([HEADER_1, *ROWS_1, ""]).encode(), "\r\n".join([HEADER_3, *ROWS_3]).encode()]


def rows_by_csv_module(text: bytes) -> list[dict[str, str]]:
    lines = text.decode("utf-8-sig").rstrip("\r\n").split("\n")
    names, *rows = [next(csv.reader([line.removesuffix("\r")], strict=True)) for line in lines]
    assert all(len(row) == len(names) for row in rows)
    return [dict(zip(names, row)) for row in rows]


def nanoseconds(cell: str) -> int:
    return int((Decimal(cell.strip(" \t")) * NS).quantize(Decimal(1), ROUND_HALF_UP))


def expected_row(row: dict[str, str], start_ns: int) -> tuple[Any, ...]:
    elapsed = row.get("Elapsed time", "").strip(" \t")
    return (
        nanoseconds(row["Timestamp"]) - start_ns,
        int(row["Request tokens"]),
        int(row["Response tokens"]),
        row["Model"],
        row.get("Session ID") or None,
        nanoseconds(elapsed) if elapsed else -1,
    )


@pytest.mark.parametrize("valid", VALID)
@settings(max_examples=75)
@given(
    line_edits=st.lists(line_edit, max_size=2),
    edits=st.lists(edit, max_size=3),
    block_bytes=st.sampled_from([100, 150, 2 << 20]),
)
def test_damage_never_gives_a_wrong_row(
    tmp_path: Path,
    valid: bytes,
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
    block_bytes: int,
) -> None:
    text = damaged(valid, line_edits, edits)
    path = tmp_path / "burst.csv"
    path.write_bytes(text)
    with patch.object(reading, "BLOCK_BYTES", block_bytes):
        try:
            workload = read_burstgpt(path)
        except TraceError as error:
            assert "burst.csv" in str(error) and "\n" not in str(error)
            return
    rows = rows_by_csv_module(text)
    start_ns = min(nanoseconds(row["Timestamp"]) for row in rows)
    assert all(row["Log Type"] in LOG_TYPES.values() for row in rows)
    kept = [row for row in (expected_row(row, start_ns) for row in rows) if row[1] > 0 and row[2] > 0]
    kept.sort(key=lambda row: row[0])
    nothing = [None] * len(workload)
    assert workload.model is not None
    durations = workload.source_duration_ns
    found = zip(
        workload.arrival_ns.tolist(),
        workload.prompt_tokens.tolist(),
        workload.output_tokens.tolist(),
        workload.model.tolist(),
        nothing if workload.session is None else workload.session.tolist(),
        [-1] * len(workload) if durations is None else durations.tolist(),
    )
    assert list(found) == kept
    assert int(workload.prompt_tokens.max()) <= MAX_TOKENS
    assert workload.rows_read == len(rows) == len(kept) + sum(workload.dropped.values())
