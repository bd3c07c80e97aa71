"""Per-request timings of a measured run, from any file format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNKNOWN: Final = float("nan")
TTFT: Final = "ttft_ms"
TPOT: Final = "tpot_ms"
E2E: Final = "e2e_ms"
QUEUE: Final = "queue_ms"
TIMES: Final = (TTFT, TPOT, E2E, QUEUE)
MS_PER_S: Final = 1e3
NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9
Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """One request: NaN and None if the file does not have the value.

    ``arrival_s`` counts from any moment, the same for all requests. ``ttft_ms`` contains ``queue_ms``.
    Times may be what the file says although it cannot be true; infinite: written, and no number. ``span_ms``:
    from start to end by other columns than ``e2e_ms``. ``failed``: the request got no answer. ``place``:
    where it is in the file, such as ``line 3``.
    """

    request: int | None = None
    arrival_s: float = UNKNOWN
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float = UNKNOWN
    tpot_ms: float = UNKNOWN
    e2e_ms: float = UNKNOWN
    queue_ms: float = UNKNOWN
    gaps_ms: Sequence[float] = ()
    failed: bool = False
    span_ms: float = UNKNOWN
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """All requests of a file in its order, as columns.

    ``request``: numbers in the workload, None if the file has none. ``prompt_tokens`` and
    ``output_tokens``: -1 unknown. ``times``: milliseconds by name (``TIMES``), NaN unknown. ``gaps_ms``:
    all gaps between tokens, of all requests together; empty if most requests lack some.
    """

    path: Path
    format: str
    sha256: str
    request: NDArray[np.int64] | None
    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    times: dict[str, NDArray[np.float64]]
    gaps_ms: NDArray[np.float64]
    failed: NDArray[np.bool_]
    remarks: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStatistics:
    """A file without single requests.

    ``numbers``: metric -> statistic in ms, None if not in the file. ``tokens``: mean lengths by column.
    """

    path: Path
    format: str
    sha256: str
    requests: int | None
    failed: int | None
    numbers: dict[str, Numbers]
    tokens: dict[str, float | None]
