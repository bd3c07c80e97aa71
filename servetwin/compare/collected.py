"""Collects the requests of a measured file as columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from servetwin.compare.measured import TIMES, MeasuredRun, RequestTiming
from servetwin.compare.token_gaps import token_gaps
from servetwin.compare.unknown_times import known_times

if TYPE_CHECKING:
    from numpy.typing import NDArray


def collected(
    path: Path, format: str, sha256: str, rows: Sequence[RequestTiming], remarks: Sequence[str] = ()
) -> MeasuredRun:
    """Return the rows as columns, without times that cannot be true (``unknown_times``)."""
    ids = [row.request for row in rows]
    times = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in TIMES}
    output = _tokens(row.output_tokens for row in rows)
    failed = np.array([row.failed for row in rows], dtype=bool)
    counts = np.array([len(row.gaps_ms) for row in rows], dtype=np.int64)
    span_ms = np.array([row.span_ms for row in rows], dtype=np.float64)
    names = [_name(at, row) for at, row in enumerate(rows)]
    known = known_times(times, output, failed, names=names, gaps=counts, span_ms=span_ms)
    gaps, more = token_gaps(rows, known)
    return MeasuredRun(
        path=path,
        format=format,
        sha256=sha256,
        request=None if None in ids else np.array(ids, dtype=np.int64),
        arrival_s=np.array([row.arrival_s for row in rows], dtype=np.float64),
        prompt_tokens=_tokens(row.prompt_tokens for row in rows),
        output_tokens=output,
        times=known.times,
        gaps_ms=np.array(gaps, dtype=np.float64),
        failed=failed,
        remarks=(*remarks, *known.remarks, *more),
    )


def _name(at: int, row: RequestTiming) -> str:
    """Return what a remark calls a request: by its number, else by its place in the file, from 0."""
    return f"request {row.request}" if row.request is not None else row.place or f"request {at}"


def _tokens(values) -> NDArray[np.int64]:  # type: ignore[no-untyped-def]
    return np.array([-1 if value is None else value for value in values], dtype=np.int64)
