"""Which times of a measured file are unknown: those that cannot be true, or contradict others of the request.

Clients write 0 where they saw nothing, and their clocks and counts disagree. Such a time is left out and
counted, and no other time is computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.measured import E2E, QUEUE, TIMES, TPOT, TTFT
from servetwin.compare.values import named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Rows = NDArray[np.bool_]

# Times of one request may differ by so much: clients round, and end a request some ms after its last token.
OFF_SHARE: Final = 0.1
OFF_MS: Final = 20.0
# TTFT and E2E come from one clock, and differ by rounding alone if one token was answered.
ROUNDING_SHARE: Final = 0.01
ROUNDING_MS: Final = 1.0
LABELS: Final = {TTFT: "TTFT", TPOT: "TPOT", E2E: "E2E", QUEUE: "queueing"}
MOST_SHOWN: Final = 4  # requests that a remark names
_MISSING: Final = "not in the file"


@dataclass(frozen=True, slots=True)
class Known:
    """``times``: metric -> times, NaN if unknown. ``remarks``: which are unknown, how many and why."""

    times: dict[str, Floats]
    remarks: list[str]


@dataclass(slots=True)
class _TimeFilter:
    """Leaves times out, and remembers the first reason of each."""

    times: dict[str, Floats]
    reasons: list[str] = field(default_factory=list)
    why: dict[str, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.why = {name: np.full(len(values), -1, dtype=np.int64) for name, values in self.times.items()}

    def leave_out(self, name: str, rows: Rows, reason: str) -> None:
        rows = rows & ~np.isnan(self.times[name])
        if rows.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
            self.why[name][rows] = self.reasons.index(reason)
            self.times[name][rows] = np.nan


def known_times(
    times: Mapping[str, Floats], tokens: Ints, failed: Rows, *, names: Sequence[str],
    gaps: Ints | None = None, span_ms: Floats | None = None,
) -> Known:  # fmt: skip
    """Leave out what cannot be true; compute a missing TPOT from TTFT, E2E and the output tokens.

    ``names``: of the requests, for remarks. ``tokens``: output tokens, -1 unknown. ``gaps``: the number of
    gaps between tokens of each request. ``span_ms``: from start to end by other columns, NaN without.
    Infinite: written, and no number.
    """
    sieve = _TimeFilter({name: np.where(failed, np.nan, values) for name, values in times.items()})
    sieve.times[TPOT][(tokens == 0) | (tokens == 1)] = np.nan  # one token has no time between tokens
    for name, values in sieve.times.items():
        sieve.leave_out(name, np.isinf(values), "no number")
        sieve.leave_out(name, values < 0, "below 0")
        if name != QUEUE:
            sieve.leave_out(name, values == 0, "0")
    several = tokens > 1
    _contradictions(sieve, several, span_ms)
    decoded = np.where(several, tokens - 1, np.nan)
    if gaps is not None:
        too_many_gaps = gaps > np.maximum(tokens, 0)
        too_many_gaps &= tokens >= 0
        sieve.leave_out(TPOT, too_many_gaps, "more gaps than output tokens")
        decoded = np.where(too_many_gaps, np.nan, decoded)
    _tpot(sieve, decoded)
    return Known(sieve.times, list(_remarks(sieve, failed, tokens, names)))


def _contradictions(sieve: _TimeFilter, several: Rows, span_ms: Floats | None) -> None:
    if span_ms is not None:
        apart = _apart(sieve.times[E2E], np.where(span_ms > 0, span_ms, np.nan))
        sieve.leave_out(E2E, apart, "not the time from the request's start to its end")
    ttft, e2e = sieve.times[TTFT], sieve.times[E2E]
    with np.errstate(invalid="ignore"):
        above = ttft > e2e * (1 + ROUNDING_SHARE) + ROUNDING_MS
        at_once = several & ~above & (ttft >= e2e)
    for name in (TTFT, E2E):
        sieve.leave_out(name, above, "TTFT above E2E")
    sieve.leave_out(TTFT, at_once, "that of the whole answer, which came at once")
    with np.errstate(invalid="ignore"):
        queued = sieve.times[QUEUE] > sieve.times[TTFT] * (1 + ROUNDING_SHARE) + ROUNDING_MS
    sieve.leave_out(QUEUE, queued, "above TTFT")


def _tpot(sieve: _TimeFilter, decoded: Floats) -> None:
    spent_ms = sieve.times[E2E] - sieve.times[TTFT]
    apart = _apart(sieve.times[TPOT] * decoded, spent_ms)
    derived = np.where(apart, np.nan, spent_ms / decoded)
    sieve.leave_out(TPOT, apart, "not (E2E - TTFT) / (output tokens - 1)")
    computed = np.isnan(sieve.times[TPOT]) & (derived > 0)
    sieve.times[TPOT][computed] = derived[computed]


def _apart(values: Floats, reference: Floats) -> Rows:
    """Return where both are known and differ beyond what rounding and the end of a request explain."""
    with np.errstate(invalid="ignore"):
        apart: Rows = np.abs(values - reference) > OFF_SHARE * reference + OFF_MS
    return apart


def _remarks(sieve: _TimeFilter, failed: Rows, tokens: Ints, names: Sequence[str]) -> Sequence[str]:
    """Return a remark for each time that some finished requests lack and others have, or had wrong."""
    remarks = []
    for name in TIMES:
        due = ~failed
        if name == TPOT:
            due = due & (tokens > 1)
        lacking = due & np.isnan(sieve.times[name])
        why = sieve.why[name][lacking]
        if not lacking.any() or (lacking.sum() == due.sum() and (why < 0).all()):
            continue
        counts = {reason: int((why == at).sum()) for at, reason in enumerate(sieve.reasons)}
        missing = _MISSING if name != TPOT else "not in the file, nor told by TTFT and E2E"
        counts[missing] = int((why < 0).sum())
        listed = "; ".join(f"{count:,}: {reason}" for reason, count in counts.items() if count)
        which = named([names[at] for at in np.flatnonzero(lacking).tolist()], MOST_SHOWN)
        remarks.append(
            f"{LABELS[name]} of {lacking.sum():,} of {due.sum():,} requests is unknown and left out "
            f"({listed}): {which}"
        )
    return remarks
