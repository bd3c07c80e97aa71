"""Which gaps of a measured file are inter-token latencies, and which lie between chunks of several tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from servetwin.compare.measured import E2E, TTFT, RequestTiming
from servetwin.compare.unknown_times import OFF_MS, OFF_SHARE, Known
from servetwin.report.number_text import duration

# ITL of the file is that of the requests whose gaps are complete, if these are nearly all of them: short
# answers are complete more often, so fewer would say something about short answers alone.
LEAST_COMPLETE: Final = 0.9
_FEWER: Final = "fewer gaps than tokens, so they lie between chunks"
_WRONG: Final = "gaps of 0 or below"


def token_gaps(rows: Sequence[RequestTiming], known: Known) -> tuple[list[float], list[str]]:
    """Return the gaps in ms that are inter-token latencies, of all requests together, and remarks."""
    due = [at for at, row in enumerate(rows) if not row.failed and row.output_tokens not in (0, 1)]
    if not any(rows[at].gaps_ms for at in due):
        return [], []
    why = {at: _incomplete(rows[at], _decoded_ms(known, at)) for at in due}
    complete = [at for at in due if not why[at]]
    reasons = Counter(reason for reason in why.values() if reason)
    if not reasons:
        return [gap for at in complete for gap in rows[at].gaps_ms], []
    lacking = len(due) - len(complete)
    listed = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.items())
    if len(complete) >= LEAST_COMPLETE * len(due):
        gaps = [gap for at in complete for gap in rows[at].gaps_ms]
        return gaps, [f"ITL is without {lacking:,} of {len(due):,} requests ({listed})"]
    between = [gap for at in due if why[at] in (_FEWER, _WRONG) for gap in rows[at].gaps_ms if _above_0(gap)]
    remark = f"ITL is unknown: {lacking:,} of {len(due):,} requests lack a gap per token ({listed})"
    if between:
        mean_ms = math.fsum(between) / len(between)
        remark += (
            f"; the mean gap between their chunks is {duration(mean_ms)}, and their TPOT is (E2E - TTFT) / "
            "(output tokens - 1)"
        )
    return [], [remark]


def _incomplete(row: RequestTiming, decoded_ms: float) -> str:
    """Return why the gaps are not those after each token; "" if they are.

    One gap more than tokens - 1 is usual: a last chunk without a token.
    """
    gaps, tokens = row.gaps_ms, row.output_tokens
    if not gaps:
        return "no gaps"
    if tokens is None:
        return "the number of output tokens is not in the file"
    if not all(map(_above_0, gaps)):
        return _WRONG
    if len(gaps) < tokens - 1:
        return _FEWER
    if len(gaps) > tokens:
        return "more gaps than output tokens"
    if abs(math.fsum(gaps) - decoded_ms) > OFF_SHARE * decoded_ms + OFF_MS:
        return "their sum is not E2E - TTFT"
    return ""


def _above_0(gap: float) -> bool:
    return 0 < gap < math.inf


def _decoded_ms(known: Known, at: int) -> float:
    return float(known.times[E2E][at] - known.times[TTFT][at])
