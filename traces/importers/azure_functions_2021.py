"""Reader of the Azure Functions invocation trace of 2021: app, func, end_timestamp, duration.

Source of the format: github.com/Azure/AzurePublicDataset, AzureFunctionsInvocationTrace2021.md: both times in
seconds, ``func`` unique within its ``app`` only, rows not sorted by arrival. Zhang et al., SOSP 2021.
"""

from pathlib import Path
from typing import Final

import numpy as np

from traces.checks import whole_number
from traces.columns import Names
from traces.csv.decimal import Decimal
from traces.csv.source import Sieve, first_rows, workload_of
from traces.csv.table import Field, read_table
from traces.csv.word import Word, compacted
from traces.errors import TraceError
from traces.workload import MAX_ROWS, Workload

NO_LENGTHS: Final = "no lengths in the source: 1 prompt and 1 output token each"
_FIELDS: Final = (
    Field("app", Word()),
    Field("func", Word()),
    Field("end_timestamp", Decimal()),
    Field("duration", Decimal()),
)
_SHORT_DIGITS: Final = 8


def read_azure_functions_2021(
    path: str | Path, *, name: str | None = None, limit: int | None = None
) -> Workload:
    """The invocations of one file in order of arrival (end less duration), counted from the first.

    A function is a model, named by the first 8 digits of its app and its own, or more where two functions
    would be one. ``limit`` takes the first arrivals; the whole file is still judged. The trace has no
    lengths, so that every request gets one token on each side, which a label says. Raises TraceError naming
    file, line, column and remedy for whatever is not an invocation.
    """
    if limit is not None:
        whole_number("trace.limit", limit, 1, MAX_ROWS)
    table = read_table(Path(path), _FIELDS)
    duration_ns = table.columns["duration"]
    start_ns = table.columns["end_timestamp"] - duration_ns
    by_arrival = np.argsort(start_ns, kind="stable")
    rows, labels = first_rows(table.rows, limit)
    by_arrival, first_ns = by_arrival[:rows], start_ns[by_arrival[0]]
    try:
        functions = _functions(table.columns["app"], table.columns["func"])
    except TraceError as error:
        raise TraceError(f"{table.path}: {error}") from error
    ones = np.ones(rows, dtype=np.int64)
    columns = {
        "arrival_ns": start_ns[by_arrival] - first_ns,
        "prompt_tokens": ones,
        "output_tokens": ones,
        "model": functions.taking(by_arrival),
        "source_duration_ns": duration_ns[by_arrival],
    }
    return workload_of(table, Sieve.of(rows), columns, name=name, labels=(*labels, NO_LENGTHS))


def _functions(app: Names, func: Names) -> Names:
    """One short name per pair of app and function."""
    pair = app.codes.astype(np.int64) * len(func.words) + func.codes
    pairs, code = np.unique(pair, return_inverse=True)
    apps, funcs = np.divmod(pairs, len(func.words))
    whole = [(app.words[a], func.words[f]) for a, f in zip(apps.tolist(), funcs.tolist())]
    return compacted(code.astype(np.int32), short_names(whole))


def short_names(functions: list[tuple[str, str]]) -> tuple[str, ...]:
    """APP/FUNC with the first 8 digits of each; those that would then be equal get twice as many, and so on.

    functions: different pairs. Raises TraceError when even whole names are equal, which only a / in one does.
    """
    names = ["/".join(part[:_SHORT_DIGITS] for part in pair) for pair in functions]
    digits = _SHORT_DIGITS
    longest = max((len(part) for pair in functions for part in pair), default=0)
    while len(set(names)) < len(names):
        if digits >= longest:
            raise TraceError("two functions would have one name: leave / out of app and func")
        digits *= 2
        rows_of: dict[str, int] = {}
        for name in names:
            rows_of[name] = rows_of.get(name, 0) + 1
        names = [
            name if rows_of[name] == 1 else "/".join(part[:digits] for part in pair)
            for name, pair in zip(names, functions, strict=True)
        ]
    return tuple(names)
