"""What the readers of all formats share: the first rows, their order of arrival, what is left out and why."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.columns import Names, Rows
from traces.csv.word import compacted
from traces.errors import TraceError
from traces.reading import Origin
from traces.workload import MAX_ROWS, Workload, taken

DROPPED_ZERO_OUTPUT: Final = "zero output tokens"
NO_LENGTHS: Final = "no lengths in the source: 1 prompt and 1 output token each"

Bools = NDArray[np.bool_]


@dataclass(slots=True)
class Sieve:
    """Which rows of a source are handed on, and why the others are not. kept: one truth per row."""

    kept: Bools
    dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: int) -> "Sieve":
        """A sieve that keeps every row."""
        return cls(np.ones(rows, dtype=np.bool_))

    def drop(self, wrong: Bools, reason: str) -> None:
        """Leave out the rows that are ``wrong`` (its first entries); count those not left out before."""
        new = wrong[: len(self.kept)] & self.kept
        if new.any():
            self.dropped[reason] = self.dropped.get(reason, 0) + int(new.sum())
            self.kept &= ~new


def check_limit(limit: int | None) -> None:
    """TraceError unless ``limit`` is None or a number of rows."""
    if limit is not None:
        whole_number("trace.limit", limit, 1, MAX_ROWS)


def first_rows(rows: int, limit: int | None) -> tuple[int, tuple[str, ...]]:
    """How many of ``rows`` a reader with ``limit`` hands on, and the label that says so."""
    if limit is None or limit >= rows:
        return rows, ()
    return limit, (f"first {limit} of {rows} requests",)


def requests_of(
    origin: Origin,
    columns: dict[str, Any],
    *,
    name: str | None,
    limit: int | None,
    labels: tuple[str, ...] = (),
) -> Workload:
    """The first ``limit`` rows of ``columns``, those with zero output left out and counted.

    labels: more of them, after that of the limit.
    """
    output = columns["output_tokens"]
    rows, limited = first_rows(len(output), limit)
    sieve = Sieve.of(rows)
    sieve.drop(output == 0, DROPPED_ZERO_OUTPUT)
    return workload_of(origin, sieve, columns, name=name, labels=(*limited, *labels))


def in_order(arrival_ns: NDArray[np.int64]) -> tuple[Rows, tuple[str, ...]]:
    """The rows in order of arrival (equal times as they stand), and a label if they were in another."""
    earlier = int(np.count_nonzero(np.diff(arrival_ns) < 0))
    if not earlier:
        return slice(len(arrival_ns)), ()
    label = f"rows sorted by arrival: {earlier} arrived before the row above"
    return np.argsort(arrival_ns, kind="stable"), (label,)


def workload_of(
    origin: Origin, sieve: Sieve, columns: dict[str, Any], *, name: str | None, labels: tuple[str, ...]
) -> Workload:
    """The kept rows of ``columns`` (schema name -> values or None) as a workload; TraceError without any.

    Rows that are not in order of arrival are sorted, with a label; equal times keep their order. ``columns``
    may be longer than the sieve, whose rows come first; it is emptied, since long traces fill the memory.
    """
    if not sieve.kept.any():
        why = ", ".join(f"{rows} rows: {reason}" for reason, rows in sieve.dropped.items())
        raise TraceError(f"{origin.path}: every request is left out ({why}): name another trace")
    rows: Rows = slice(len(sieve.kept)) if sieve.kept.all() else np.flatnonzero(sieve.kept)
    order, unsorted = in_order(columns["arrival_ns"][rows])
    if unsorted:
        rows = np.arange(len(sieve.kept))[rows][order]
    return Workload(
        **{column: _kept(columns.pop(column), rows) for column in list(columns)},
        name=name or origin.name,
        source=origin.source,
        labels=(*labels, *unsorted),
        dropped=sieve.dropped,
        rows_read=len(sieve.kept),
    )


def _kept(values: Any, rows: Rows) -> Any:
    if isinstance(values, Names):
        return compacted(values.codes[rows], values.words)
    return taken(values, rows)
