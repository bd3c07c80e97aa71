"""A workload: one row per request, stored in columns."""

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
"""31 years: the latest arrival after any change of times, so that sums of two fit into 64 bits."""
OPEN_LOOP = "open loop: "  # labels about changed arrival times begin with it
TIMES = "times "  # labels about the unit of the times in a file begin with it
MAX_TOKENS = 10_000_000
"""Most tokens of a prompt or an output. No public model has a longer context: a row with more is damaged."""
MAX_ROWS = 200_000_000
"""Most rows of a workload that is drawn or replicated; its columns take about 5 GB."""

_LEAST = {
    "arrival_ns": 0,
    "prompt_tokens": 1,
    "output_tokens": 1,
    "max_new_tokens": 1,
    "priority": None,
    "images": 0,
    "source_duration_ns": -1,
}
"""Column of whole numbers -> the smallest value allowed; None if every value is allowed."""
_TOKENS = ("prompt_tokens", "output_tokens", "max_new_tokens")
SIZE_COLUMNS = ("prompt_tokens", "output_tokens", "max_new_tokens", "images", "source_duration_ns", "prefix")
"""The columns about the size of a request. A copy of a request takes all of them from one row."""
KIN_COLUMNS = ("model", "priority", "session")
"""The columns about the sender of a request and its model. A copy has them from the request it copies."""
COLUMNS = ("arrival_ns", *SIZE_COLUMNS, *KIN_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workload:
    """Requests in the order of their arrival. All columns have the same length and are read-only.

    arrival_ns: int64, nanoseconds from the start of the run to the arrival, never decreasing.
    prompt_tokens: int64, length of the prompt, 1 to MAX_TOKENS.
    output_tokens: int64, true length of the output, 1 to MAX_TOKENS; a controller must not read it.
    A column below is None if the trace does not have it:
    max_new_tokens: int64, the most tokens that the request may generate, 1 to MAX_TOKENS.
    model: the model or function that the request is for; every row has one.
    priority: int64; a larger number is more urgent. session: the conversation; rows may have none.
    prefix: the parts that prompts share: ids of the blocks of each prompt, or the turns of conversations.
    images: int64, number of images in the prompt; prompt_tokens includes their tokens.
    source_duration_ns: int64, how long the recorded system served the request; -1 if unknown.
    The other fields describe the whole trace:
    name: the user's name for it. source: where the rows come from, as a text for people.
    labels: one text for each difference between this trace and its source.
    dropped: reason -> number of rows of the source that are left out for it. rows_read: rows of the source.
    Raises TraceError if a column breaks one of these rules.
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
        """Arrivals per second: 1 / (the mean gap); None if all requests arrive at the same time."""
        duration_s = self.duration_s
        return (len(self) - 1) / duration_s if duration_s > 0 else None

    def in_closed_loop(self, clients: int) -> "Workload":
        """The workload with a label for a closed loop, in which each client sends its next request after the
        answer to its last one. Labels about arrival times are removed."""
        labels = tuple(label for label in self.labels if not label.startswith((OPEN_LOOP, TIMES)))
        label = f"closed loop of {clients} clients: arrival times are not the trace's"
        return replace(self, labels=(*labels, label))

    def warmed_up(self, requests: int) -> "Workload":
        """The workload behind so many copies of its first request, which warm the servers up.

        InferenceX's load generator repeats the first prompt, too (``test_input`` in its
        utils/bench_serving/benchmark_serving.py).
        """
        rows = np.concatenate([np.zeros(requests, np.int64), np.arange(len(self))])
        return self.taking(rows, f"{requests} warm-up requests, copies of the first, are run and not counted")

    def limited(self, n: int) -> "Workload":
        """The first ``n`` requests, or all if there are fewer. Raises TraceError if ``n`` is below 1."""
        count = whole_number("trace.limit", n, 1, MAX_ROWS)
        if count >= len(self):
            return self
        return self.taking(slice(0, count), f"first {count} of {len(self)} requests")

    def taking(self, rows: Rows, label: str) -> "Workload":
        """A workload of the rows that ``rows`` selects, with ``label`` added to its labels."""
        columns = {column: taken(getattr(self, column), rows) for column in COLUMNS}
        return replace(self, **columns, labels=(*self.labels, label))

    def labelled(self, label: str, **changed: Any) -> "Workload":
        """The workload with the fields in ``changed`` replaced, and with one more label about the change."""
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
        earlier = self.arrival_ns[1:] < self.arrival_ns[:-1]
        if earlier.any():
            row = int(np.argmax(earlier)) + 1
            raise TraceError(
                f"workload {self.name!r}: arrival_ns goes backwards in row {row}: sort the rows by arrival"
            )


def taken(column: Any, rows: Rows) -> Any:
    """The selected rows of a column of any kind; None if ``column`` is None."""
    if column is None:
        return None
    return column.taking(rows) if isinstance(column, Names | PrefixBlocks | Turns) else column[rows]
