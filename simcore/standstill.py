"""Notices a world in which nothing happens any more but looks of the load monitor."""

from collections.abc import Mapping

from serving.errors import UserError
from serving.units import NS_PER_S
from simcore.lifetime import Lifetime

# Longer than anything that ends by itself without an event: caches and parked instances keep for minutes.
PATIENCE_NS = 3600 * NS_PER_S


class Standstill:
    """Since when only looks have been handled."""

    __slots__ = ("_events", "_since_ns")

    def __init__(self) -> None:
        self._events = -1
        self._since_ns = 0

    def is_over_patience(self, now_ns: int, events: int) -> bool:
        """At a look; ``events``: how many were handled before it, looks included."""
        if events != self._events + 1:
            self._since_ns = now_ns
        self._events = events
        return now_ns - self._since_ns > PATIENCE_NS


def standstill(lives: Mapping[int, Lifetime]) -> UserError:
    """What is said of requests that nobody will ever serve."""
    first = next(iter(lives.values())).request
    return UserError(
        f"the world stands still with {len(lives)} requests that nobody will serve, request {first.id} of "
        f"model {first.model!r} first: its instances find no free GPUs or no parameters; give the cluster "
        "more GPUs, raise the least of a role in system.instances, or write system/cache=pool"
    )
