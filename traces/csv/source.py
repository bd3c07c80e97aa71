"""What the readers of CSV traces share: the name of the source, the first rows, what is left out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traces.columns import Names, Rows
from traces.csv.bytes import Bools, Ints
from traces.csv.table import Table
from traces.csv.word import compacted
from traces.errors import TraceError
from traces.workload import NS_PER_S, Workload, taken

DROPPED_ZERO_OUTPUT = "zero output tokens"


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


def shown_name(path: Path) -> str:
    """The file's name as text; a name on disk need not be."""
    return path.name.encode("utf-8", "backslashreplace").decode()


def first_rows(rows: int, limit: int | None) -> tuple[int, tuple[str, ...]]:
    """How many of ``rows`` a reader with ``limit`` hands on, and the label that says so."""
    if limit is None or limit >= rows:
        return rows, ()
    return limit, (f"first {limit} of {rows} requests",)


def check_order(times_ns: Ints, table: Table, column: str) -> None:
    """TraceError at the first row that arrives before the one above."""
    step_ns = np.diff(times_ns)
    if len(step_ns) and step_ns.min() < 0:
        row = int(np.argmax(step_ns < 0))
        problem = f"the timestamp is {-int(step_ns[row]) / NS_PER_S:.9g} s before the line above"
        raise table.place(row + 1).error(problem, f"sort the lines by {column}", column)


def workload_of(
    table: Table,
    sieve: Sieve,
    columns: dict[str, Any],
    *,
    name: str | None,
    labels: tuple[str, ...],
    empty: str = "every row is left out: name a trace with requests",
) -> Workload:
    """The kept rows of ``columns`` (schema name -> values or None) as a workload.

    ``columns`` may be longer than the sieve, whose rows come first; it is emptied, since long traces fill the
    memory. empty: problem and remedy when no row is kept.
    """
    if not sieve.kept.any():
        raise TraceError(f"{table.path}: {empty}")
    shown = shown_name(table.path)
    rows: Rows = slice(len(sieve.kept)) if sieve.kept.all() else np.flatnonzero(sieve.kept)
    return Workload(
        **{column: _kept(columns.pop(column), rows) for column in list(columns)},
        name=name or shown.removesuffix(".gz").removesuffix(".csv").removesuffix(".txt"),
        source=f"{shown} sha256={table.digest}",
        labels=labels,
        dropped=sieve.dropped,
        rows_read=len(sieve.kept),
    )


def _kept(values: Any, rows: Rows) -> Any:
    if isinstance(values, Names):
        return compacted(values.codes[rows], values.words)
    return taken(values, rows)
