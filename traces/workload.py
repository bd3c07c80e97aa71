"""The workload schema: one row per request, kept in columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.errors import TraceError

NS_PER_S = 1_000_000_000
MAX_TOKENS = 10_000_000
"""Most tokens on one side of a request; no public model's context is larger, so more is a damaged row."""
MAX_ROWS = 200_000_000
"""Most rows ever synthesised or replicated (about 5 GB of columns): more is a slip of the keyboard."""

_WHOLE_COLUMNS = ("arrival_ns", "prompt_tokens", "output_tokens", "max_new_tokens", "priority")
_COLUMNS = (*_WHOLE_COLUMNS, "model")
_AT_LEAST_ONE = ("prompt_tokens", "output_tokens", "max_new_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests in arrival order. All columns have one length and are read-only.

    arrival_ns: int64, nanoseconds from the run's start, not decreasing.
    prompt_tokens, output_tokens: int64, at least 1; the true output length is for the world alone.
    max_new_tokens: int64, at least 1, or None where the trace has no such column.
    model: str per row, or None. priority: int64 per row, or None.
    name: what the user calls it. source: where the rows come from, for people.
    labels: every transformation that makes this trace another than its source.
    dropped: reason -> rows of the source that were never handed on. rows_read: rows of the source.
    Raises TraceError when an invariant does not hold.
    """

    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    name: str
    source: str
    max_new_tokens: NDArray[np.int64] | None = None
    model: NDArray[Any] | None = None
    priority: NDArray[np.int64] | None = None
    labels: tuple[str, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0

    def __post_init__(self) -> None:
        for column in _COLUMNS:
            values = getattr(self, column)
            if values is not None:
                object.__setattr__(self, column, self._frozen_column(column, values))
        self._check_rows()
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "dropped", dict(self.dropped))

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last arrival."""
        return int(self.arrival_ns[-1] - self.arrival_ns[0]) / NS_PER_S

    @property
    def mean_rate_per_s(self) -> float | None:
        """Arrivals per second, the inverse of the mean gap; None when all arrivals share one instant."""
        duration_s = self.duration_s
        return (len(self) - 1) / duration_s if duration_s > 0 else None

    def limited(self, n: int) -> "Workload":
        """The first ``n`` requests (at least 1, otherwise TraceError); all of them when there are fewer."""
        count = whole_number("trace.limit", n, 1, MAX_ROWS)
        if count >= len(self):
            return self
        return self.taking(slice(0, count), f"first {count} of {len(self)} requests")

    def taking(self, rows: slice | NDArray[np.int64] | NDArray[np.bool_], label: str) -> "Workload":
        """The rows that ``rows`` selects, under one more label."""
        caps, model, priority = self.max_new_tokens, self.model, self.priority
        return replace(
            self,
            arrival_ns=self.arrival_ns[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            max_new_tokens=None if caps is None else caps[rows],
            model=None if model is None else model[rows],
            priority=None if priority is None else priority[rows],
            labels=(*self.labels, label),
        )

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive row slices of at most ``size`` rows that cover every row once."""
        step = whole_number("size", size, 1, MAX_ROWS)
        return (slice(start, min(start + step, len(self))) for start in range(0, len(self), step))

    def _frozen_column(self, column: str, values: Any) -> NDArray[Any]:
        array = np.asarray(values)
        if array.ndim != 1:
            raise TraceError(f"workload {self.name!r}: {column} must be one-dimensional, not {array.ndim}-d")
        if column in _WHOLE_COLUMNS:
            if array.dtype.kind not in "iu":
                raise TraceError(f"workload {self.name!r}: {column} must hold integers, not {array.dtype}")
            array = array.astype(np.int64, copy=False)
        frozen = array.view()  # a view, so that the caller's own array stays writable
        frozen.flags.writeable = False
        return frozen

    def _check_rows(self) -> None:
        if len(self.arrival_ns) == 0:
            raise TraceError(f"workload {self.name!r} has no requests: give it at least one")
        for column in _COLUMNS:
            values = getattr(self, column)
            if values is not None and len(values) != len(self.arrival_ns):
                raise TraceError(
                    f"workload {self.name!r}: {column} has {len(values)} rows and arrival_ns"
                    f" {len(self.arrival_ns)}: give every column one length"
                )
            if values is not None and column in _AT_LEAST_ONE and values.min() < 1:
                row = int(np.argmax(values < 1))
                raise TraceError(
                    f"workload {self.name!r}: {column} is {values[row]} in row {row}: write at least 1"
                )
        self._check_arrivals()

    def _check_arrivals(self) -> None:
        if self.arrival_ns[0] < 0:
            raise TraceError(
                f"workload {self.name!r}: arrival_ns starts before 0: count from the run's start"
            )
        back = self.arrival_ns[1:] < self.arrival_ns[:-1]
        if back.any():
            row = int(np.argmax(back)) + 1
            raise TraceError(
                f"workload {self.name!r}: arrival_ns goes backwards in row {row}: sort the rows by arrival"
            )
