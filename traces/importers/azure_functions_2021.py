"""Reader of the Azure Functions invocation trace of 2021: app, func, end_timestamp, duration.

Source of the format: github.com/Azure/AzurePublicDataset, AzureFunctionsInvocationTrace2021.md: both times in
seconds, ``func`` unique within its ``app`` only, rows not sorted by arrival. Zhang et al., SOSP 2021.
"""

from pathlib import Path
from typing import Final

import numpy as np

from traces.columns import Names
from traces.csv.moment import moment, span
from traces.csv.table import Field, Table, first_cells, read_table
from traces.csv.word import Word, compacted
from traces.errors import TraceError
from traces.importers.azure_functions import short_names
from traces.importers.requests import NO_LENGTHS, Sieve, check_limit, first_rows, workload_of
from traces.times import Clock, Ints, read_in_unit
from traces.workload import Workload

_END: Final = "end_timestamp"
_NAMES: Final = (Field("app", Word()), Field("func", Word()))


def read_azure_functions_2021(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The invocations of one file in order of arrival (end less duration), counted from the first.

    A function is a model, named by the first 8 digits of its app and its own, or more where two functions
    would be one. time_unit: of both times, see ``traces.times``; None: durations are in s, as published.
    ``limit`` takes the first arrivals; the whole file is still judged. The trace has no
    lengths, so that every request gets one token on each side, which a label says. Raises TraceError naming
    file, line, column and remedy for whatever is not an invocation.
    """
    check_limit(limit)
    file = Path(path)
    first = first_cells(file).get(_END) if time_unit is None else None
    (table, by_arrival), times = read_in_unit(
        Clock("s"),
        time_unit,
        first,
        lambda unit: _read(file, unit, unit if time_unit else "s"),
        from_first=True,
    )
    duration_ns = table.columns["duration"]
    rows, labels = first_rows(table.rows, limit)
    by_arrival = by_arrival[:rows]
    try:
        functions = _functions(table.columns["app"], table.columns["func"])
    except TraceError as error:
        raise TraceError(f"{table.origin.path}: {error}") from error
    ones = np.ones(rows, dtype=np.int64)
    columns = {
        "arrival_ns": times.arrival_ns[:rows],
        "prompt_tokens": ones,
        "output_tokens": ones,
        "model": functions.taking(by_arrival),
        "source_duration_ns": duration_ns[by_arrival],
    }
    labels += (*times.labels, NO_LENGTHS)
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=labels)


def _read(file: Path, unit: str, duration_unit: str) -> tuple[tuple[Table, Ints], Ints]:
    """The table with the order in which its rows arrive, and their times in that order."""
    table = read_table(file, (*_NAMES, Field(_END, moment(unit)), Field("duration", span(duration_unit))))
    start_ns = table.columns[_END] - table.columns["duration"]
    by_arrival = np.argsort(start_ns, kind="stable")
    return (table, by_arrival), start_ns[by_arrival]


def _functions(app: Names, func: Names) -> Names:
    """One short name per pair of app and function."""
    pair = app.codes.astype(np.int64) * len(func.words) + func.codes
    pairs, code = np.unique(pair, return_inverse=True)
    apps, funcs = np.divmod(pairs, len(func.words))
    whole = [(app.words[a], func.words[f]) for a, f in zip(apps.tolist(), funcs.tolist())]
    return compacted(code.astype(np.int32), short_names(whole))
