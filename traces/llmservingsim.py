"""Reader of LLMServingSim workloads as CSV: arrival_time_ns, input_toks, output_toks, one line per request.

Source of the columns: the workloads of casys-kaist/LLMServingSim (MIT), whose token ids are not read.
"""

import re
from pathlib import Path
from typing import Final

import numpy as np

from traces.checks import whole_number
from traces.csv_blocks import file_digest, line_blocks
from traces.errors import TraceError
from traces.workload import MAX_ROWS, MAX_TOKENS, Workload

COLUMNS: Final = ("arrival_time_ns", "input_toks", "output_toks")
_HEADER: Final = ",".join(COLUMNS)
# 18 digits of nanoseconds are 31 years, and fit into 64 bits.
_LINE: Final = re.compile(rb"([0-9]{1,18}),([0-9]{1,8}),([0-9]{1,8})")


def read_llmservingsim(path: str | Path, *, name: str, limit: int | None = None) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written.

    ``limit`` keeps the first rows. Raises TraceError naming file, line and remedy for whatever is not a
    request: arrivals that go back, lengths of 0 or beyond ``MAX_TOKENS``, other columns.
    """
    if limit is not None:
        whole_number("trace.limit", limit, 1, MAX_ROWS)
    file = Path(path)
    digest = file_digest(file)
    rows = _rows(file)
    labels: tuple[str, ...] = ()
    if limit is not None and limit < len(rows):
        labels = (f"first {limit} of {len(rows)} requests",)
        rows = rows[:limit]
    arrival_ns, prompt_tokens, output_tokens = np.array(rows, dtype=np.int64).T
    shown = file.name.encode("utf-8", "backslashreplace").decode()
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        name=name,
        source=f"{shown} sha256={digest}",
        rows_read=len(rows),
        labels=labels,
    )


def _rows(file: Path) -> list[tuple[int, int, int]]:
    lines = b"".join(line_blocks(file)).removesuffix(b"\n").split(b"\n")
    if lines[0].strip() != _HEADER.encode():
        raise TraceError(f"{file}, line 1: the header is not {_HEADER}: write these three columns")
    if len(lines) == 1:
        raise TraceError(f"{file} has a header and no requests: add one line per request")
    rows: list[tuple[int, int, int]] = []
    for number, line in enumerate(lines[1:], start=2):
        row = _row(file, number, line)
        if rows and row[0] < rows[-1][0]:
            raise TraceError(f"{file}, line {number}: it arrives before the line above: sort by {COLUMNS[0]}")
        rows.append(row)
    return rows


def _row(file: Path, number: int, line: bytes) -> tuple[int, int, int]:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise TraceError(
            f"{file}, line {number}: not three whole numbers: write {_HEADER}, such as 46926808,2358,531"
        )
    arrival_ns, prompt, output = (int(text) for text in match.groups())
    for column, tokens in zip(COLUMNS[1:], (prompt, output), strict=True):
        if not 1 <= tokens <= MAX_TOKENS:
            raise TraceError(
                f"{file}, line {number}, column {column}: {tokens} tokens: write 1 to {MAX_TOKENS}"
            )
    return arrival_ns, prompt, output
