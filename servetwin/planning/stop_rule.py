"""Ends a plan's run as soon as the objective can no longer be met, whatever the requests still to end do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

from servetwin.assemble.front_end import FrontDoor
from servetwin.planning.objective import Limit, Objective
from servetwin.report.metric_text import value_text
from servetwin.results.metrics import NS_PER_MS, QUANTILES
from servetwin.run.prepared import Prepared
from serving.vocabulary.replica import BEYOND_CONTEXT
from serving.vocabulary.request import Request
from simcore.stopping import GO_ON

_ROUNDING: Final = 1 + 1e-9  # a sum in another order than numpy's
_UNBOUNDED: Final = ("itl_ms.",)  # gaps between tokens are only counted in a sketch
_TTFT, _TPOT, _E2E = 0, 1, 2
_PLACE: Final = {"ttft_ms": _TTFT, "tpot_ms": _TPOT, "e2e_ms": _E2E}


class _Bound(Protocol):
    """What one limit knows of the requests that have ended."""

    missed: str

    def is_missed(self, values: Sequence[float | None]) -> bool:
        """Add a finished request's TTFT, TPOT and E2E; return whether the limit is missed by now."""

    def is_missed_unanswered(self) -> bool:
        """Add a request without an answer; return whether the limit is missed by now."""


class _Exceeding:
    """A percentile or maximum: so many requests may be above the limit, however few have a value."""

    def __init__(self, limit: Limit, requests: int) -> None:
        latency, _, statistic = limit.metric.partition(".")
        quantile = QUANTILES.get(statistic, 1.0)
        self._place, self._most = _PLACE[latency], limit.value
        self._left = allowed_above(quantile, requests)
        self.missed = f"{limit.metric} > {value_text(limit.metric, limit.value)}"

    def is_missed(self, values: Sequence[float | None]) -> bool:
        """Count the request if it is above the limit."""
        value = values[self._place]
        if value is not None and value > self._most:
            self._left -= 1
        return self._left < 0

    def is_missed_unanswered(self) -> bool:
        """Such a request has no latency."""
        return False


class _Mean:
    """A mean: requests still to end cannot lower the sum, and there are no more than ``requests``."""

    def __init__(self, limit: Limit, requests: int) -> None:
        self._place = _PLACE[limit.metric.partition(".")[0]]
        self._left = limit.value * requests * _ROUNDING
        self.missed = f"{limit.metric} > {value_text(limit.metric, limit.value)}"

    def is_missed(self, values: Sequence[float | None]) -> bool:
        """Add to the sum."""
        self._left -= values[self._place] or 0.0
        return self._left < 0

    def is_missed_unanswered(self) -> bool:
        """Such a request has no latency."""
        return False


class _Share:
    """Attainment: at best all requests still to end are good."""

    def __init__(self, limit: Limit, requests: int, ttft_ms: float, tpot_ms: float) -> None:
        self._good, self._requests, self._least = requests, requests, limit.value
        self._ttft_ms, self._tpot_ms = ttft_ms, tpot_ms
        self.missed = f"{limit.metric} < {value_text(limit.metric, limit.value)}"

    def is_missed(self, values: Sequence[float | None]) -> bool:
        """Count the request if it is late."""
        ttft_ms, tpot_ms = values[_TTFT], values[_TPOT]
        late = ttft_ms is None or ttft_ms > self._ttft_ms
        if late or (tpot_ms is not None and tpot_ms > self._tpot_ms):
            self._good -= 1
        return self._good / self._requests < self._least

    def is_missed_unanswered(self) -> bool:
        """Count the request as missed."""
        self._good -= 1
        return self._good / self._requests < self._least


def allowed_above(quantile: float, requests: int) -> int:
    """Return how many of so many values may be above a limit that their quantile still meets.

    With linear interpolation (``servetwin.results.metrics.spread``) the quantile lies at or above the value
    at the place ``floor(quantile * (values - 1))``. Fewer values allow no more.
    """
    return max(requests - 1 - math.floor(quantile * (requests - 1)), 0)


class ObjectiveRule:
    """Implements simcore.stopping.StopRule: ends a run once its objective is missed for certain.

    Goodput and gaps between tokens are judged at the end alone. Warm-up requests are not counted.
    """

    def __init__(self, objective: Objective, prepared: Prepared, door: FrontDoor | None) -> None:
        trace, slo = prepared.config.trace, prepared.config.slo
        self._first, self._door = trace.warmup_requests, door
        self._way_out_ms = 0.0 if door is None else 1e3 * door.front_end.way_out_s
        self._refuses = any(limit.at_most for limit in objective.limits)
        requests = max(len(prepared.workload) - self._first, 1)
        self._bounds = [
            bound for limit in objective.limits
            if (bound := _bound(limit, requests, slo.ttft_ms, slo.tpot_ms)) is not None
        ]  # fmt: skip

    def finished(self, request: Request, output_tokens: int, first_token_ns: int, finish_ns: int) -> str:
        """Judge the request's latencies; its client's are at least these, whoever decodes beside it."""
        if request.id < self._first:
            return GO_ON
        arrival_ns, around_ms = request.arrival_ns, 0.0
        if self._door is not None:
            around_ms = (arrival_ns - self._door.sent_of(request)) / NS_PER_MS + self._way_out_ms
        decoded = output_tokens - 1
        values = (
            (first_token_ns - arrival_ns) / NS_PER_MS + around_ms,
            (finish_ns - first_token_ns) / decoded / NS_PER_MS if decoded > 0 else None,
            (finish_ns - arrival_ns) / NS_PER_MS + around_ms,
        )
        for bound in self._bounds:
            if bound.is_missed(values):
                return bound.missed
        return GO_ON

    def refused(self, request: Request, reason: str) -> str:
        """Judge a rejected request: with a limit on a latency, all within the context must be answered."""
        if request.id < self._first:
            return GO_ON
        if self._refuses and not reason.endswith(BEYOND_CONTEXT):
            return f"requests rejected ({reason})"
        return self._unanswered()

    def failed(self, request: Request, reason: str) -> str:
        """Judge a lost request: none may be."""
        return GO_ON if request.id < self._first else f"requests failed ({reason})"

    def _unanswered(self) -> str:
        for bound in self._bounds:
            if bound.is_missed_unanswered():
                return bound.missed
        return GO_ON


def _bound(limit: Limit, requests: int, ttft_ms: float, tpot_ms: float) -> _Bound | None:
    """Return what a limit can know before the last request has ended; None: nothing."""
    if limit.metric == "slo.attainment":
        return _Share(limit, requests, ttft_ms, tpot_ms)
    if not limit.at_most or limit.metric.startswith(_UNBOUNDED):
        return None
    return (_Mean if limit.metric.endswith(".mean") else _Exceeding)(limit, requests)


def may_stop(prepared: Prepared) -> bool:
    """Return whether a rule knows how every request ends: not if clients give up and send again."""
    return prepared.config.trace.client_timeout_s is None
