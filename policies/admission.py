"""Admission policies: which arriving requests the service accepts."""

from math import inf

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S


class AdmitAll:
    """Accept every request."""

    def admit(self, now_ns: int, request: Request, fleet: FleetView) -> str | None:
        """Accept the request; never refuses."""
        return None


class TokenBucket:
    """At most ``rate_per_s`` requests per second on average and ``burst`` at once.

    The bucket counts in integers: it gains ``rate_per_s`` in millionths each nanosecond. A request costs what
    a rate of one per second gains in a second.
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        if not 1e-6 <= rate_per_s < inf or burst < 1:
            raise ValueError("token bucket needs a finite rate_per_s of at least 1e-6 and burst >= 1")
        self._rate_millionths = round(rate_per_s * 1_000_000)
        self._cost = NS_PER_S * 1_000_000
        self._capacity = burst * self._cost
        self._level = self._capacity
        self._filled_ns = 0

    def admit(self, now_ns: int, request: Request, fleet: FleetView) -> str | None:
        """Take one token; refuse the request if the bucket is empty."""
        filled = self._level + (now_ns - self._filled_ns) * self._rate_millionths
        self._level = min(self._capacity, filled)
        self._filled_ns = now_ns
        if self._level < self._cost:
            return "token bucket empty"
        self._level -= self._cost
        return None
