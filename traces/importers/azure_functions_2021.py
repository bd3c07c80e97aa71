"""Reader of the Azure Functions invocation trace of 2021: app, func, end_timestamp, duration.

Source of the format: github.com/Azure/AzurePublicDataset, AzureFunctionsInvocationTrace2021.md: both times in
seconds, ``func`` unique within its ``app`` only, rows not sorted by arrival. Zhang et al., SOSP 2021.
"""

from pathlib import Path
from typing import Final

import numpy as np

from traces.columns import Names
from traces.csv.decimal import Decimal
from traces.csv.table import Field, read_table
from traces.csv.word import Word, compacted
from traces.errors import TraceError
from traces.importers.azure_functions import short_names
from traces.importers.requests import NO_LENGTHS, Sieve, check_limit, first_rows, workload_of
from traces.workload import Workload

_FIELDS: Final = (
    Field("app", Word()),
    Field("func", Word()),
    Field("end_timestamp", Decimal()),
    Field("duration", Decimal()),
)


def read_azure_functions_2021(
    path: str | Path, *, name: str | None = None, limit: int | None = None
) -> Workload:
    """The invocations of one file in order of arrival (end less duration), counted from the first.

    A function is a model, named by the first 8 digits of its app and its own, or more where two functions
    would be one. ``limit`` takes the first arrivals; the whole file is still judged. The trace has no
    lengths, so that every request gets one token on each side, which a label says. Raises TraceError naming
    file, line, column and remedy for whatever is not an invocation.
    """
    check_limit(limit)
    table = read_table(Path(path), _FIELDS)
    duration_ns = table.columns["duration"]
    start_ns = table.columns["end_timestamp"] - duration_ns
    by_arrival = np.argsort(start_ns, kind="stable")
    rows, labels = first_rows(table.rows, limit)
    by_arrival, first_ns = by_arrival[:rows], start_ns[by_arrival[0]]
    try:
        functions = _functions(table.columns["app"], table.columns["func"])
    except TraceError as error:
        raise TraceError(f"{table.origin.path}: {error}") from error
    ones = np.ones(rows, dtype=np.int64)
    columns = {
        "arrival_ns": start_ns[by_arrival] - first_ns,
        "prompt_tokens": ones,
        "output_tokens": ones,
        "model": functions.taking(by_arrival),
        "source_duration_ns": duration_ns[by_arrival],
    }
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=(*labels, NO_LENGTHS))


def _functions(app: Names, func: Names) -> Names:
    """One short name per pair of app and function."""
    pair = app.codes.astype(np.int64) * len(func.words) + func.codes
    pairs, code = np.unique(pair, return_inverse=True)
    apps, funcs = np.divmod(pairs, len(func.words))
    whole = [(app.words[a], func.words[f]) for a, f in zip(apps.tolist(), funcs.tolist())]
    return compacted(code.astype(np.int32), short_names(whole))
