"""Workloads that other tools keep nested: AIBrix, Weka's conversations of agents, OpenAI's Batch API.

Sources of the formats: AIBrix's workload generator (timestamp in ms, requests that arrive then); AIPerf's
tutorial of Weka traces (docs.nvidia.com/aiperf: t in s from the conversation's start, type n or s, subagents
with requests of their own, hash_id_scope local or global); OpenAI's Batch API (a line per request: body).
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final

from traces.column_names import Columns
from traces.errors import TraceError
from traces.importers.drawn_arrivals import Draw
from traces.importers.json_lines import Spot, first_row, json_rows, shown, whole
from traces.importers.json_table import JsonTable, workload_of_table
from traces.importers.sharegpt import conversations
from traces.importers.texts import Measure, measure_of
from traces.importers.whole_document import document_of
from traces.reading import head_of
from traces.times import Clock
from traces.workload import Workload

NO_DRAW: Final = Draw(None, 1.0, 0, "")
AIBRIX: Final = '{"timestamp": 0, "requests": [{"prompt_length": 700, "output_length": 50}]}'
WEKA: Final = '{"id": "a", "block_size": 64, "requests": [{"t": 0.5, "in": 700, "out": 50, "hash_ids": [0]}]}'
BATCH: Final = '{"custom_id": "a", "body": {"messages": [{"content": "Hi"}], "max_tokens": 50}}'
CAPS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NUMBERS: Final = (int, Decimal)
_MOST_DEPTH: Final = 16
TOGETHER: Final = "conversations begin together, each at its own time 0"


def named(**theirs: str) -> Columns:
    """The columns of a format whose keys are known."""
    return Columns(theirs=theirs, given=frozenset(), common=frozenset(), unit=None, ignored=())


def read_aibrix(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The requests of one file; those of a line arrive together. time_unit: None: ms. Raises TraceError."""
    file = Path(path)
    table = JsonTable(
        rows=lambda: _aibrix_rows(file),
        columns=named(
            arrival_ms="timestamp",
            prompt_tokens="prompt_length",
            output_tokens="output_length",
            session="session_id",
            model="model",
        ),
        clock=Clock("ms", stated=True),
    )
    return workload_of_table(file, table, NO_DRAW, name=name, limit=limit, time_unit=time_unit)


def _aibrix_rows(file: Path) -> Iterator[tuple[Spot, dict[str, Any]]]:
    for spot, line in json_rows(file, AIBRIX):
        for request in _objects(line, "requests", AIBRIX, spot):
            yield spot, {**request, "timestamp": line.get("timestamp")}


def read_weka(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    partial_prefix: bool = False,
    time_unit: str | None = None,
) -> Workload:
    """The turns of all conversations of a file, each conversation a session, from its own time 0 on.

    Times inside a subagent that are earlier than its own are counted from there. Block ids are those of the
    conversation alone if its hash_id_scope is local. partial_prefix: as of Mooncake's files.
    time_unit: None: s. Raises TraceError.
    """
    file = Path(path)
    sizes = {size for _, talk in _talks(file) if (size := talk.get("block_size")) is not None}
    if len(sizes) != 1 or type(size := sizes.pop()) is not int or size < 1:
        raise TraceError(f"{file}: block_size is not one whole number above 0 in all lines: write one")
    talks = sum(1 for _ in _talks(file))
    table = JsonTable(
        rows=lambda: _weka_rows(file),
        columns=named(arrival_s="t", prompt_tokens="in", output_tokens="out", session="session"),
        clock=Clock("s", stated=True),
        blocks=("hash_ids", size),
        partial=partial_prefix,
        labels=(f"{talks} {TOGETHER}",) if talks > 1 else (),
    )
    return workload_of_table(file, table, NO_DRAW, name=name, limit=limit, time_unit=time_unit)


def _talks(file: Path) -> Iterator[tuple[Spot, dict[str, Any]]]:
    """(place, conversation): elements of an array, lines, or the one object of the file."""
    head = head_of(file).lstrip()
    if head.startswith(b"["):
        return conversations(file)
    first = json_rows(file, WEKA)
    try:
        return chain([next(first)], first)
    except TraceError:
        return iter([(Spot(file, 1, "conversation"), document_of(file))])


def _weka_rows(file: Path) -> Iterator[tuple[Spot, dict[str, Any]]]:
    local: dict[tuple[int, int], int] = {}
    for number, (spot, talk) in enumerate(_talks(file), start=1):
        session = str(talk.get("id") or f"conversation {number}")
        for turn in _turns(talk, None, spot):
            row = {**turn, "session": session}
            if talk.get("hash_id_scope") == "local" and isinstance(row.get("hash_ids"), list):
                ids = row["hash_ids"]
                row["hash_ids"] = [
                    local.setdefault((number, at), len(local)) if type(at) is int else at for at in ids
                ]
            yield spot, row


def _turns(talk: dict[str, Any], start: Any, spot: Spot, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The turns of a conversation and of its subagents. start: when it begins, if it is a subagent's."""
    if depth > _MOST_DEPTH:
        raise spot.error(f"subagents are nested over {_MOST_DEPTH} deep", "leave the deeper out", "requests")
    for turn in _objects(talk, "requests", WEKA, spot):
        at = turn.get("t")
        if depth and type(at) in _NUMBERS and type(start) in _NUMBERS and at < start:
            at = at + start
        if "requests" in turn:
            yield from _turns(turn, at, spot, depth + 1)
        else:
            yield {**turn, "t": at}


def read_openai_batch(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    chars_per_token: float | None = None,
    rate_per_s: float | None = None,
    gap_cv: float = 1.0,
    seed: int = 0,
) -> Workload:
    """The requests of one file. The output is the most tokens that it may have.

    chars_per_token: of its texts; rate_per_s, gap_cv, seed: of drawn arrivals; without the first two it is
    refused. Raises TraceError.
    """
    file = Path(path)
    first_row(file, BATCH)
    lacks = ["trace.rate_per_s= and the requests per second"] if rate_per_s is None else []
    lacks += (
        ["trace.chars_per_token=4 to estimate the tokens of its texts"] if chars_per_token is None else []
    )
    if rate_per_s is None or chars_per_token is None:
        raise TraceError(f"{file} has neither arrivals nor lengths: write {' and '.join(lacks)}")
    measure = measure_of(None, chars_per_token)
    table = JsonTable(
        rows=lambda: _batch_rows(file, measure),
        columns=named(prompt_tokens="prompt", output_tokens="output", model="model"),
        clock=Clock("s"),
        labels=(f"prompt lengths {measure.label()}", f"output lengths taken from {CAPS[0]}"),
    )
    draw = Draw(rate_per_s, gap_cv, seed, "openai_batch")
    return workload_of_table(file, table, draw, name=name, limit=limit, time_unit=None)


def _batch_rows(file: Path, measure: Measure) -> Iterator[tuple[Spot, dict[str, Any]]]:
    for spot, line in json_rows(file, BATCH):
        body = line.get("body")
        if not isinstance(body, dict):
            raise spot.error(f"{shown(body)} is not an object", f"write {BATCH}", "body")
        cap = next((key for key in CAPS if body.get(key) is not None), CAPS[0])
        size = measure.size(_text(body, spot), spot)
        row = {"prompt": measure.tokens(size, spot, "body"), "output": whole(body, cap, spot)}
        yield spot, {**row, "model": body.get("model")}


def _text(body: dict[str, Any], spot: Spot) -> str:
    """All text of a request: messages, prompt or input."""
    texts = list(_texts(next((body[key] for key in ("messages", "prompt", "input") if key in body), None)))
    if not any(texts):
        raise spot.error("the request has no text", f"write {BATCH}", "body")
    return "".join(texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(value.get("content", value.get("text")))


def _objects(row: dict[str, Any], key: str, example: str, spot: Spot) -> list[dict[str, Any]]:
    listed = row.get(key)
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        problem = "the list is missing" if listed is None else "it is not a list of objects"
        raise spot.error(problem, f"write {example}", key)
    return listed
