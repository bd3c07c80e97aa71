"""Requests without an answer, with the reason: the rows of unserved.parquet."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from serving.vocabulary.request import Request

if TYPE_CHECKING:
    import numpy as np

    from traces.columns import Names

Outcome = Literal["rejected", "failed", "timed_out"]
OUTCOMES: Final = ("rejected", "failed", "timed_out")
_NUMBERS: Final = ("request", "arrival_ns", "prompt_tokens", "max_new_tokens", "end_ns")


class Unserved:
    """Requests that were rejected, failed or given up, in the order of their ends."""

    def __init__(self, sent_ns: Callable[[Request], int] | None = None) -> None:
        """``sent_ns``: when clients sent requests, if they arrived later; None: they arrived at once."""
        self._sent_ns = sent_ns
        self._rows = array("q")
        self._reasons: dict[str, int] = {}

    def add(self, request: Request, end_ns: int, outcome: Outcome, reason: str) -> None:
        """Add a request that ended without an answer. ``end_ns``: when, in the clock of the run."""
        code = self._reasons.setdefault(reason, len(self._reasons))
        sent_ns = request.arrival_ns if self._sent_ns is None else self._sent_ns(request)
        numbers = request.id, sent_ns, request.prompt_tokens, request.max_new_tokens, end_ns
        self._rows.extend((*numbers, OUTCOMES.index(outcome), code))

    def __len__(self) -> int:
        return len(self._rows) // (len(_NUMBERS) + 2)

    def columns(self) -> dict[str, np.ndarray | Names]:
        """Return one row per request by request id: the numbers, ``outcome`` and ``reason``."""
        import numpy as np

        from traces.columns import Names

        rows = np.frombuffer(self._rows, dtype=np.int64).reshape(-1, len(_NUMBERS) + 2)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        columns: dict[str, np.ndarray | Names] = {
            name: np.ascontiguousarray(rows[:, at]) for at, name in enumerate(_NUMBERS)
        }
        outcome, reason = rows[:, -2].astype(np.int32), rows[:, -1].astype(np.int32)
        words = OUTCOMES if OUTCOMES.index("timed_out") in outcome else OUTCOMES[:2]
        return columns | {"outcome": Names(outcome, words), "reason": Names(reason, tuple(self._reasons))}
