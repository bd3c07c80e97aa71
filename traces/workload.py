"""The workload schema: one row per request, kept in columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.columns import ABSENT, Names, PrefixBlocks, Rows, frozen
from traces.errors import TraceError
from traces.turns import Turns

NS_PER_S = 1_000_000_000
INT64_MAX = 2**63 - 1
LONGEST_NS = 10**18
"""31 years: the latest arrival that any change of time gives, so that sums stay within 64 bits."""
OPEN_LOOP = "open loop: "  # begins labels about arrival times
TIMES = "times "  # the same: in which unit they were read
MAX_TOKENS = 10_000_000
"""Most tokens on one side of a request; no public model's context is larger, so more is a damaged row."""
MAX_ROWS = 200_000_000
"""Most rows ever synthesised or replicated (about 5 GB of columns): more is a slip of the keyboard."""

_LEAST = {
    "arrival_ns": 0,
    "prompt_tokens": 1,
    "output_tokens": 1,
    "max_new_tokens": 1,
    "priority": None,
    "images": 0,
    "source_duration_ns": -1,
}
"""Columns of whole numbers -> their least value (None: any)."""
_TOKENS = ("prompt_tokens", "output_tokens", "max_new_tokens")
SIZE_COLUMNS = ("prompt_tokens", "output_tokens", "max_new_tokens", "images", "source_duration_ns", "prefix")
"""How much work a request is; a copy of a request takes these from one row, together."""
KIN_COLUMNS = ("model", "priority", "session")
"""The sender of a request and its model; a copy keeps its parent's."""
COLUMNS = ("arrival_ns", *SIZE_COLUMNS, *KIN_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workload:
    """Requests in arrival order. All columns have one length and are read-only.

    arrival_ns: int64, nanoseconds from the run's start, not decreasing.
    prompt_tokens, output_tokens: int64, 1 to MAX_TOKENS; the true output length is for the world alone.
    The other columns are None where the trace has none:
    max_new_tokens: int64, 1 to MAX_TOKENS. model: the model or function asked for, every row one.
    priority: int64, larger is more urgent. session: the conversation; rows may have none.
    prefix: what prompts share with others: ids of their blocks, or the conversations they are turns of.
    images: int64 pictures in the prompt (their tokens are counted in prompt_tokens).
    source_duration_ns: int64, how long the recorded system took; -1 where unknown.
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
    model: Names | None = None
    priority: NDArray[np.int64] | None = None
    session: Names | None = None
    prefix: PrefixBlocks | Turns | None = None
    images: NDArray[np.int64] | None = None
    source_duration_ns: NDArray[np.int64] | None = None
    labels: tuple[str, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0

    def __post_init__(self) -> None:
        for column in _LEAST:
            values = getattr(self, column)
            if values is not None:
                object.__setattr__(self, column, self._frozen_column(column, values))
        for column, kinds in (("model", (Names,)), ("session", (Names,)), ("prefix", (PrefixBlocks, Turns))):
            value = getattr(self, column)
            if value is not None and not isinstance(value, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise TraceError(f"workload {self.name!r}: {column} must be {wanted} or None")
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

    def in_closed_loop(self, clients: int) -> "Workload":
        """Labelled as what ``clients`` send one after the other; labels about arrival times are left out."""
        labels = tuple(label for label in self.labels if not label.startswith((OPEN_LOOP, TIMES)))
        label = f"closed loop of {clients} clients: arrival times are not the trace's"
        return replace(self, labels=(*labels, label))

    def limited(self, n: int) -> "Workload":
        """The first ``n`` requests (at least 1, otherwise TraceError); all of them when there are fewer."""
        count = whole_number("trace.limit", n, 1, MAX_ROWS)
        if count >= len(self):
            return self
        return self.taking(slice(0, count), f"first {count} of {len(self)} requests")

    def taking(self, rows: Rows, label: str) -> "Workload":
        """The rows that ``rows`` selects, under one more label."""
        columns = {column: taken(getattr(self, column), rows) for column in COLUMNS}
        return replace(self, **columns, labels=(*self.labels, label))

    def labelled(self, label: str, **changed: Any) -> "Workload":
        """The same workload with some fields ``changed``, which ``label`` says."""
        return replace(self, **changed, labels=(*self.labels, label))

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive row slices of at most ``size`` rows that cover every row once."""
        step = whole_number("size", size, 1, MAX_ROWS)
        return (slice(start, min(start + step, len(self))) for start in range(0, len(self), step))

    def _frozen_column(self, column: str, values: Any) -> NDArray[Any]:
        array = np.asarray(values)
        if array.ndim != 1:
            raise TraceError(f"workload {self.name!r}: {column} must be one-dimensional, not {array.ndim}-d")
        if array.dtype.kind not in "iu":
            raise TraceError(f"workload {self.name!r}: {column} must hold integers, not {array.dtype}")
        return frozen(array.astype(np.int64, copy=False))

    def _check_rows(self) -> None:
        if len(self.arrival_ns) == 0:
            raise TraceError(f"workload {self.name!r} has no requests: give it at least one")
        for column in COLUMNS:
            values = getattr(self, column)
            if values is not None and len(values) != len(self.arrival_ns):
                raise TraceError(
                    f"workload {self.name!r}: {column} has {len(values)} rows and arrival_ns"
                    f" {len(self.arrival_ns)}: give every column the same length"
                )
        self._check_arrivals()
        for column, least in _LEAST.items():
            self._check_least(column, least)
        for column in _TOKENS:
            self._check_most(column)
        if self.model is not None and (self.model.codes == ABSENT).any():
            row = int(np.argmax(self.model.codes == ABSENT))
            raise TraceError(f"workload {self.name!r}: row {row} has no model: name one in every row or none")

    def _check_least(self, column: str, least: int | None) -> None:
        values = getattr(self, column)
        if values is None or least is None or values.min() >= least:
            return
        row = int(np.argmax(values < least))
        raise TraceError(
            f"workload {self.name!r}: {column} is {values[row]} in row {row}: write at least {least}"
        )

    def _check_most(self, column: str) -> None:
        values = getattr(self, column)
        if values is None or values.max() <= MAX_TOKENS:
            return
        row = int(np.argmax(values > MAX_TOKENS))
        raise TraceError(
            f"workload {self.name!r}: {column} is {values[row]} in row {row}: write at most {MAX_TOKENS}"
        )

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


def taken(column: Any, rows: Rows) -> Any:
    """The selected rows of one column of any kind; None of none."""
    if column is None:
        return None
    return column.taking(rows) if isinstance(column, Names | PrefixBlocks | Turns) else column[rows]
