"""Reader of ServeGen workloads saved as CSV: request_id, timestamp, input_tokens, output_tokens.

Source of the columns: github.com/alibaba/ServeGen (arXiv 2505.09999); a timestamp is in seconds.
Workloads of reasoning and multimodal models have more columns, parts of the two lengths: reason_tokens,
answer_tokens, image_tokens and the like.
"""

from pathlib import Path
from typing import Final

from traces.csv.moment import moment
from traces.csv.table import Field, Table, read_table
from traces.csv.whole import Whole
from traces.importers.csv_times import read_times
from traces.importers.requests import check_limit, requests_of
from traces.times import Clock
from traces.workload import Workload

_TIME: Final = "timestamp"
_LENGTHS: Final = (
    Field("input_tokens", Whole(1, noun="prompt tokens")),
    Field("output_tokens", Whole()),
)


def read_servegen_csv(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The requests of one file, with arrivals from the file's first timestamp on, as of its JSONL form.

    time_unit: of the timestamps, see ``traces.times``; None: s.
    ``limit`` takes the file's first rows, those to be dropped included; the whole file is still judged. Rows
    with zero output tokens are left out and counted. The cells of request_id and of further ``*_tokens``
    columns are not looked at. Raises TraceError naming file, line, column and remedy for what is no request.
    """
    check_limit(limit)
    table, times = read_times(Path(path), Clock("s"), time_unit, _TIME, _read, from_first=True)
    columns = {
        "arrival_ns": times.arrival_ns,
        "prompt_tokens": table.columns["input_tokens"],
        "output_tokens": table.columns["output_tokens"],
    }
    return requests_of(table.origin, columns, name=name, limit=limit, labels=times.labels)


def _read(path: Path, unit: str) -> Table:
    fields = (Field(_TIME, moment(unit)), *_LENGTHS)
    return read_table(path, fields, lambda column: column == "request_id" or column.endswith("_tokens"))
