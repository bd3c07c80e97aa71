"""Reader of the Azure LLM inference traces of 2023 and 2024 (CSV, plain or gzipped).

Source of the format: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and ...2024.md:
columns TIMESTAMP, ContextTokens, GeneratedTokens; seven fraction digits in 2023, a +00:00 zone in 2024.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from traces.checks import whole_number
from traces.csv_blocks import file_digest, line_blocks
from traces.csv_line import HEADER, OUTPUT, STAMP, Place, header_order, read_line
from traces.csv_rows import Bools, Ints, Rows, read_rows
from traces.errors import TraceError
from traces.workload import MAX_ROWS, NS_PER_S, Workload

DROPPED_ZERO_OUTPUT = "zero output tokens"
_HEADER_LINES = 1


@dataclass(frozen=True, slots=True)
class _Columns:
    stamp_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    zoned: Bools


def read_azure(path: str | Path, *, name: str | None = None, limit: int | None = None) -> Workload:
    """The requests of one file, with arrivals from the file's first timestamp on, exact to the nanosecond.

    ``limit`` takes the file's first rows only, those to be dropped included; the whole file is still judged.

    Rows with zero output tokens are left out and counted in ``dropped``; equal timestamps keep their order.
    Raises TraceError naming file, line (the header is line 1), column and remedy for anything else that is
    not a request: a wrong row is never passed on.
    """
    if limit is not None:
        whole_number("trace.limit", limit, 1, MAX_ROWS)
    file = Path(path)
    digest = file_digest(file)
    columns = _joined(list(_parts(file)), file)
    _check_order(columns.stamp_ns, file)
    rows = len(columns.stamp_ns)
    labels: tuple[str, ...] = ()
    if limit is not None and limit < rows:
        labels = (f"first {limit} of {rows} requests",)
        rows = limit
    kept = columns.output_tokens[:rows] > 0
    if not kept.any():
        raise TraceError(f"{file}, column {OUTPUT}: every row has 0: name a trace with generated tokens")
    dropped = int(len(kept) - kept.sum())
    shown = file.name.encode("utf-8", "backslashreplace").decode()  # a name on disk need not be text
    return Workload(
        arrival_ns=(columns.stamp_ns[:rows] - columns.stamp_ns[0])[kept],
        prompt_tokens=columns.prompt_tokens[:rows][kept],
        output_tokens=columns.output_tokens[:rows][kept],
        name=name or shown.removesuffix(".gz").removesuffix(".csv"),
        source=f"{shown} sha256={digest}",
        dropped={DROPPED_ZERO_OUTPUT: dropped} if dropped else {},
        rows_read=len(kept),
        labels=labels,
    )


def _parts(file: Path) -> Iterator[_Columns]:
    """Columns block by block, every line judged."""
    blocks = line_blocks(file)
    first = next(blocks, b"")
    if not first.strip():
        raise TraceError(f"{file} is empty: write the header {HEADER} and one line per request")
    head, _, rest = first.partition(b"\n")
    order = header_order(head.removesuffix(b"\r"), Place(file, _HEADER_LINES))
    lines_before, blank_line = _HEADER_LINES, 0
    for block in _with_first(rest, blocks):
        rows = read_rows(block, order)
        content = np.flatnonzero(rows.end > rows.start)
        count = int(content[-1]) + 1 if len(content) else 0
        if count and blank_line:
            raise Place(file, blank_line).error("the line is empty", "delete it, or fill in its three fields")
        if count:
            yield _judged(block, rows, count, Place(file, lines_before + 1), order)
        if count < len(rows.end) and not blank_line:
            blank_line = lines_before + count + 1
        lines_before += len(rows.end)


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _judged(block: bytes, rows: Rows, count: int, first: Place, order: tuple[int, int, int]) -> _Columns:
    """The first ``count`` rows, with those that are not in the usual form read (or refused) one by one."""
    columns = _Columns(
        rows.stamp_ns[:count], rows.prompt_tokens[:count], rows.output_tokens[:count], rows.zoned[:count]
    )
    for row in np.flatnonzero(~rows.ok[:count]).tolist():
        text = block[rows.start[row] : rows.end[row]]
        values = read_line(text, replace(first, line=first.line + row), order)
        columns.stamp_ns[row], columns.prompt_tokens[row], columns.output_tokens[row], columns.zoned[row] = (
            values
        )
    return columns


def _joined(parts: list[_Columns], file: Path) -> _Columns:
    if not parts:
        raise TraceError(f"{file} has a header and no requests: add one line per request")
    joined = _Columns(
        np.concatenate([part.stamp_ns for part in parts]),
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        np.concatenate([part.zoned for part in parts]),
    )
    other = joined.zoned != joined.zoned[0]
    if other.any():
        place = Place(file, _HEADER_LINES + 1 + int(np.argmax(other)))
        has, had = ("no zone", "has one") if joined.zoned[0] else ("a zone", "has none")
        raise place.error(
            f"the timestamp has {has} and the first row's {had}",
            "write all with +00:00 or all without",
            STAMP,
        )
    return joined


def _check_order(stamp_ns: Ints, file: Path) -> None:
    step_ns = np.diff(stamp_ns)
    if len(step_ns) and step_ns.min() < 0:
        row = int(np.argmax(step_ns < 0))
        place = Place(file, _HEADER_LINES + 2 + row)
        back_s = -int(step_ns[row]) / NS_PER_S
        raise place.error(
            f"the timestamp is {back_s:.9g} s before the line above", "sort the lines by TIMESTAMP", STAMP
        )
