"""Reader of the BurstGPT traces, releases 1, 2 and 3 (CSV, plain or gzipped).

Source of the format: github.com/HPMLL/BurstGPT (KDD 2025, arXiv 2401.17644): Timestamp in seconds from 0:00
of the first day, Model, Request tokens, Response tokens, Total tokens, Log Type; release 3 adds Session ID
(blank where the log is of the API) and Elapsed time in seconds.
"""

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from traces.columns import Names
from traces.csv.bytes import Bools
from traces.csv.moment import moment, span
from traces.csv.table import Field, Table, read_table
from traces.csv.whole import Whole
from traces.csv.word import Word
from traces.errors import TraceError
from traces.importers.csv_times import read_times
from traces.importers.requests import Sieve, check_limit, first_rows, workload_of
from traces.times import Clock, ParsedTimes
from traces.workload import MAX_TOKENS, Workload

DROPPED_FAILED: Final = "failed: 0 response tokens"
DROPPED_NO_PROMPT: Final = "0 request tokens"
DROPPED_WRONG_TOTAL: Final = "total tokens are not the sum"
LOG_TYPES: Final = {"conversation": "Conversation log", "api": "API log"}
MAX_WRONG_TOTALS: Final = 0.01
"""Share of rows with a wrong total above which the columns are not what their names say."""

_TIME, _MODEL, _PROMPT, _OUTPUT, _TOTAL, _LOG, _SESSION, _ELAPSED = (
    "Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type", "Session ID",
    "Elapsed time",
)  # fmt: skip
_FIELDS: Final = (
    Field(_MODEL, Word()),
    Field(_PROMPT, Whole()),
    Field(_OUTPUT, Whole()),
    Field(_TOTAL, Whole(most=2 * MAX_TOKENS)),
    Field(_LOG, Word()),
    Field(_SESSION, Word(blank=True), required=False),
)


def read_burstgpt(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    log_type: str | None = None,
    model: str | None = None,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file, with arrivals from the file's first timestamp on.

    ``limit`` takes the file's first rows only, those to be dropped included; the whole file is still judged.
    time_unit: of both times, see ``traces.times``; None: s, and with dates elapsed times are in s.
    ``log_type`` keeps only ``conversation`` or ``api``, ``model`` only one of the file's models.

    Left out and counted in ``dropped``: what the two choices exclude, failed requests (no response tokens),
    rows without request tokens, and rows whose total is not the sum. Raises TraceError when more than 1 %
    of the rows have a wrong total, when a choice leaves nothing, and for anything else that is not a
    request.
    """
    check_limit(limit)
    if log_type is not None and log_type not in LOG_TYPES:
        raise TraceError(f"trace.log_type={log_type} is unknown: write {' or '.join(LOG_TYPES)}")
    table, times = read_times(
        Path(path),
        Clock("s"),
        time_unit,
        _TIME,
        partial(_read, stated=time_unit is not None),
        from_first=True,
    )
    columns = table.columns
    _check_log_types(table)
    if model is not None and model not in columns[_MODEL].words:
        known = ", ".join(columns[_MODEL].words[:10])
        raise TraceError(f"trace.model={model} is not in {table.origin.path}: write one of {known}")
    wrong = _wrong_totals(table)
    rows, labels = first_rows(table.rows, limit)
    labels += times.labels
    sieve = Sieve.of(rows)
    if log_type is not None:
        sieve.drop(_unlike(columns[_LOG], LOG_TYPES[log_type]), f"log type is not {LOG_TYPES[log_type]}")
        labels += (f"only log type {LOG_TYPES[log_type]}",)
    if model is not None:
        sieve.drop(_unlike(columns[_MODEL], model), f"model is not {model}")
        labels += (f"only model {model}",)
    sieve.drop(columns[_OUTPUT] == 0, DROPPED_FAILED)
    sieve.drop(columns[_PROMPT] == 0, DROPPED_NO_PROMPT)
    sieve.drop(wrong, DROPPED_WRONG_TOTAL)
    return workload_of(table.origin, sieve, _schema(table, times), name=name, labels=labels)


def _read(path: Path, unit: str, stated: bool) -> Table:
    """``stated``: the user named the unit, of both times; else the elapsed times are in s, as published."""
    elapsed = Field(_ELAPSED, span(unit if stated else "s", blank=-1), required=False)
    return read_table(path, (Field(_TIME, moment(unit)), *_FIELDS, elapsed))


def _schema(table: Table, times: ParsedTimes) -> dict[str, object]:
    """Schema name -> values. The table is emptied: a long one need not be in memory twice."""
    columns = table.columns
    schema = {
        "arrival_ns": times.arrival_ns,
        "prompt_tokens": columns.pop(_PROMPT),
        "output_tokens": columns.pop(_OUTPUT),
        "model": columns.pop(_MODEL),
        "session": columns.pop(_SESSION, None),
        "source_duration_ns": columns.pop(_ELAPSED, None),
    }
    columns.clear()
    return schema


def _check_log_types(table: Table) -> None:
    logs = table.columns[_LOG]
    unknown = [word for word in logs.words if word not in LOG_TYPES.values()]
    if unknown:
        row = int(np.argmax(logs.codes == logs.words.index(unknown[0])))
        problem = f"{unknown[0][:40]!r} is not a log type"
        raise table.place(row).error(problem, f"write {' or '.join(LOG_TYPES.values())}", _LOG)


def _wrong_totals(table: Table) -> Bools:
    """Rows with a wrong total; those with 0 tokens on a side are left out for that and need none."""
    columns = table.columns
    wrong: Bools = columns[_PROMPT] + columns[_OUTPUT] != columns[_TOTAL]
    wrong &= (columns[_PROMPT] > 0) & (columns[_OUTPUT] > 0)
    count = int(wrong.sum())
    if count > MAX_WRONG_TOTALS * table.rows:
        place = table.place(int(np.argmax(wrong)))
        problem = f"the total is not the sum in this row and in {count} of {table.rows} rows overall"
        raise place.error(problem, f"correct the columns: {_PROMPT} + {_OUTPUT} = {_TOTAL}", _TOTAL)
    return wrong


def _unlike(names: Names, word: str) -> Bools:
    if word not in names.words:
        return np.ones(len(names), dtype=np.bool_)
    unlike: Bools = names.codes != names.words.index(word)
    return unlike
