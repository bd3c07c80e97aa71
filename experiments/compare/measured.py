"""Per-request timings of a measured run, from any file format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True, slots=True)
class Timing:
    """One request: NaN and None if the file does not have the value.

    ``arrival_s`` counts from any moment, the same for all requests. ``ttft_ms`` contains ``queue_ms``.
    ``failed``: the request got no answer.
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


@dataclass(frozen=True, slots=True)
class Measured:
    """All requests of a file in its order, as columns.

    ``request``: numbers in the workload, None if the file has none. ``prompt_tokens`` and
    ``output_tokens``: -1 unknown. ``times``: milliseconds by name (``TIMES``). ``gaps_ms``: all gaps between
    tokens, of all requests together.
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


def collected(
    path: Path, format: str, sha256: str, rows: Sequence[Timing], remarks: Sequence[str] = ()
) -> Measured:
    """Return the rows as columns; a missing TPOT is computed from TTFT, E2E and the output tokens."""
    import numpy as np

    ids = [row.request for row in rows]
    times = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in TIMES}
    output = _tokens(row.output_tokens for row in rows)
    decoded = np.where(output > 1, output - 1, np.nan)
    derived = (times[E2E] - times[TTFT]) / decoded
    times[TPOT] = np.where(np.isnan(times[TPOT]), derived, times[TPOT])
    gaps = [gap for row in rows for gap in row.gaps_ms]
    return Measured(
        path,
        format,
        sha256,
        None if None in ids else np.array(ids, dtype=np.int64),
        np.array([row.arrival_s for row in rows], dtype=np.float64),
        _tokens(row.prompt_tokens for row in rows),
        output,
        times,
        np.array(gaps, dtype=np.float64),
        np.array([row.failed for row in rows], dtype=bool),
        tuple(remarks),
    )


def _tokens(values: Iterable[int | None]) -> NDArray[np.int64]:
    import numpy as np

    return np.array([-1 if value is None else value for value in values], dtype=np.int64)
