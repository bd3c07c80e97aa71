"""LLMServingSim workloads: CSV of arrival_time_ns, input_toks, output_toks; or JSON lines with ids of blocks.

Source of the columns: the workloads of casys-kaist/LLMServingSim (MIT), whose token ids are not read. JSON
lines were made from these: Mooncake's keys, but arrivals in ns, and every full block of 16 tokens has a
number in order of first appearance; a block's id stands for all before it, too.
"""

from pathlib import Path
from typing import Final

from traces.csv.moment import moment
from traces.csv.table import Field, Table, read_table
from traces.csv.whole import Whole
from traces.importers.csv_times import read_times
from traces.importers.mooncake import HASHES, OUTPUT, PROMPT, BlockKeys, read_blocks
from traces.importers.requests import Sieve, check_limit, first_rows, workload_of
from traces.times import Clock
from traces.workload import Workload

COLUMNS: Final = ("arrival_time_ns", "input_toks", "output_toks")
_LENGTHS: Final = (
    Field(COLUMNS[1], Whole(1)),
    Field(COLUMNS[2], Whole(1)),
)


def read_llmservingsim(
    path: str | Path, *, name: str | None = None, limit: int | None = None, time_unit: str | None = None
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written.

    time_unit: of the arrivals, see ``traces.times``; None: ns.
    ``limit`` keeps the first rows; the whole file is still judged. Raises TraceError naming file, line,
    column and remedy for whatever is not a request: arrivals that go back, lengths of 0 or beyond
    ``MAX_TOKENS``, other columns.
    """
    check_limit(limit)
    table, times = read_times(Path(path), Clock("ns", stated=True), time_unit, COLUMNS[0], _read)
    prompt, output = (table.columns[column] for column in COLUMNS[1:])
    rows, labels = first_rows(table.rows, limit)
    columns = {"arrival_ns": times.arrival_ns, "prompt_tokens": prompt, "output_tokens": output}
    return workload_of(table.origin, Sieve.of(rows), columns, name=name, labels=(*labels, *times.labels))


def _read(path: Path, unit: str) -> Table:
    return read_table(path, (Field(COLUMNS[0], moment(unit)), *_LENGTHS))


BLOCK_TOKENS: Final = 16
"""Tokens of a block: that of vLLM's KV cache."""
TIME: Final = "arrival_time_ns"
_EXAMPLE: Final = f'{{"{TIME}": 0, "{PROMPT}": 35, "{OUTPUT}": 50, "{HASHES}": [0, 1]}}'


def read_llmservingsim_prefix(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    block_tokens: int = BLOCK_TOKENS,
    partial_prefix: bool = False,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written. See ``read_mooncake``."""
    keys = BlockKeys(TIME, Clock("ns", stated=True), _EXAMPLE)
    return read_blocks(
        path,
        keys,
        name=name,
        limit=limit,
        block_tokens=block_tokens,
        partial_prefix=partial_prefix,
        time_unit=time_unit,
    )
