"""Reader of LLMServingSim workloads as CSV: arrival_time_ns, input_toks, output_toks, one line per request.

Source of the columns: the workloads of casys-kaist/LLMServingSim (MIT), whose token ids are not read.
"""

from pathlib import Path
from typing import Final

from traces.csv.table import Field, read_table
from traces.csv.whole import Whole
from traces.importers.requests import Sieve, check_limit, check_order, first_rows, workload_of
from traces.workload import INT64_MAX, Workload

COLUMNS: Final = ("arrival_time_ns", "input_toks", "output_toks")
_FIELDS: Final = (
    Field(COLUMNS[0], Whole(most=INT64_MAX, noun="nanoseconds", example=46926808)),
    Field(COLUMNS[1], Whole(1)),
    Field(COLUMNS[2], Whole(1)),
)


def read_llmservingsim(path: str | Path, *, name: str | None = None, limit: int | None = None) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written.

    ``limit`` keeps the first rows; the whole file is still judged. Raises TraceError naming file, line,
    column and remedy for whatever is not a request: arrivals that go back, lengths of 0 or beyond
    ``MAX_TOKENS``, other columns.
    """
    check_limit(limit)
    table = read_table(Path(path), _FIELDS)
    arrival, prompt, output = (table.columns[column] for column in COLUMNS)
    check_order(arrival, table.place, COLUMNS[0])
    rows, labels = first_rows(table.rows, limit)
    columns = {"arrival_ns": arrival, "prompt_tokens": prompt, "output_tokens": output}
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=labels)
