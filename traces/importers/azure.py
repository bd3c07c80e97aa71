"""Reader of the Azure LLM inference traces of 2023, 2024 and 2025 (CSV, plain or gzipped).

Source of the format: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md, ...2024.md and
AzureLMMInferenceDataset2025.md: columns TIMESTAMP, ContextTokens, GeneratedTokens; seven fraction digits in
2023, a +00:00 zone in 2024; in 2025 also NumImages, whose tokens are counted in ContextTokens.
"""

from pathlib import Path

from traces.csv.moment import moment
from traces.csv.table import Field, Table, read_table
from traces.csv.whole import Whole
from traces.importers.csv_times import read_times
from traces.importers.requests import check_limit, requests_of
from traces.times import ISO, Clock
from traces.workload import Workload

STAMP, PROMPT, OUTPUT, IMAGES = "TIMESTAMP", "ContextTokens", "GeneratedTokens", "NumImages"
_LENGTHS = (
    Field(PROMPT, Whole(1, noun="prompt tokens")),
    Field(OUTPUT, Whole()),
    Field(IMAGES, Whole(noun="images", example=2), required=False),
)


def read_azure(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The requests of one file, with arrivals from the file's first timestamp on, exact to the nanosecond.

    time_unit: of the timestamps, see ``traces.times``; None: dates.
    ``limit`` takes the file's first rows only, those to be dropped included; the whole file is still judged.

    Rows with zero output tokens are left out and counted in ``dropped``; equal timestamps keep their order.
    Raises TraceError naming file, line (the header is line 1), column and remedy for anything else that is
    not a request: a wrong row is never passed on.
    """
    check_limit(limit)
    table, times = read_times(Path(path), Clock(ISO, stated=True), time_unit, STAMP, _read, from_first=True)
    columns = {
        "arrival_ns": times.arrival_ns,
        "prompt_tokens": table.columns[PROMPT],
        "output_tokens": table.columns[OUTPUT],
        "images": table.columns.get(IMAGES),
    }
    return requests_of(table.origin, columns, name=name, limit=limit, labels=times.labels)


def _read(path: Path, unit: str) -> Table:
    return read_table(path, (Field(STAMP, moment(unit)), *_LENGTHS))
