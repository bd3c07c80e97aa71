"""A flow in progress, and the times at which flows are due."""

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from hwmodels.fabric.flow import FlowSpec

INF: Final = math.inf
_ROUNDING: Final = 1e-12  # a part that lacks at most this share of itself has moved


class Moving:
    """A flow that has not ended.

    due_s: when it joins its links (``joined`` is False) or ends. rate, bytes/s, since ``since_s``;
    ``remaining_bytes`` of ``size_bytes`` were left then. level: rate per weight; infinite until its first
    rate is known. queued_s: the earliest time at which the agenda lists it. booked: no other flow is on its
    links, so it joins them at ``since_s`` and ends at ``due_s`` unless another flow starts there. past:
    earlier rates, as (since when, bytes left then, rate); None if nobody wants to know them.
    """

    __slots__ = (
        "booked", "due_s", "joined", "level", "links", "number", "past", "priority", "queued_s", "rate",
        "remaining_bytes", "since_s", "size_bytes", "spec",
    )  # fmt: skip

    def __init__(self, number: int, spec: FlowSpec, size_bytes: float, since_s: float, due_s: float) -> None:
        self.number, self.spec = number, spec
        self.links, self.priority = spec.links, spec.priority
        self.size_bytes = self.remaining_bytes = size_bytes
        self.since_s, self.due_s = since_s, due_s
        self.joined = self.booked = False
        self.rate = 0.0
        self.level = self.queued_s = INF
        self.past: list[tuple[float, float, float]] | None = None

    def left_bytes(self, now_s: float) -> float:
        """Bytes still to be moved at ``now_s``."""
        return max(self.remaining_bytes - self.rate * (now_s - self.since_s), 0.0)

    def set_rate(self, rate: float, now_s: float) -> None:
        """Set the rate from ``now_s`` on; subtract the bytes moved until then."""
        if self.past is not None:
            self.past.append((self.since_s, self.remaining_bytes, self.rate))
        if self.rate:
            self.remaining_bytes = self.left_bytes(now_s)
        self.since_s = now_s
        self.rate = rate
        self.due_s = now_s + self.remaining_bytes / rate if rate else INF

    def shorten(self, size_bytes: float) -> None:
        """Change the size to a smaller one; its rates are no longer kept."""
        self.remaining_bytes = max(0.0, self.remaining_bytes - (self.size_bytes - size_bytes))
        self.size_bytes, self.past = size_bytes, None
        if self.rate:
            self.due_s = self.since_s + self.remaining_bytes / self.rate

    def passed_s(self, sizes_bytes: Sequence[float], now_s: float) -> list[float]:
        """When each of these parts, one after another, had moved: of those that have by now."""
        stretches = [*(self.past or ()), (self.since_s, self.remaining_bytes, self.rate)]
        ends = [*((since_s, left) for since_s, left, _ in stretches[1:]), (now_s, self.left_bytes(now_s))]
        times, at, left_bytes = list[float](), 0, self.size_bytes
        for size_bytes in sizes_bytes:
            left_bytes -= size_bytes
            while at < len(ends) and ends[at][1] > left_bytes + size_bytes * _ROUNDING:
                at += 1
            if at == len(ends):
                break
            since_s, left, rate = stretches[at]
            times.append(min(ends[at][0], since_s + (left - left_bytes) / rate if rate else since_s))
        return times


class Agenda:
    """Flows by due time: a heap whose outdated entries stay until they reach the top.

    A flow whose due time moves back keeps its early entry; it is queued anew when that entry reaches the top.
    """

    __slots__ = ("entries", "moving")

    def __init__(self, moving: dict[int, Moving]) -> None:
        self.moving = moving
        self.entries: list[tuple[float, int]] = []

    def put(self, flow: Moving) -> None:
        """Queue the flow; its due time may have changed."""
        due_s = flow.due_s
        if due_s < flow.queued_s:
            flow.queued_s = due_s
            heappush(self.entries, (due_s, flow.number))

    def next_s(self) -> float:
        """When the next flow is due; infinite if there is none."""
        entries = self.entries
        while entries:
            at_s, number = entries[0]
            flow = self.moving.get(number)
            if flow is not None and flow.queued_s == at_s:
                if flow.due_s == at_s:
                    return at_s
                flow.queued_s = INF
                self.put(flow)
            heappop(entries)
        return INF

    def pop(self) -> Moving:
        """Remove and return the flow due at ``next_s``."""
        flow = self.moving[heappop(self.entries)[1]]
        flow.queued_s = INF
        return flow

    def tidy(self) -> None:
        """Drop outdated entries once they are most of the heap."""
        if len(self.entries) > 64 + 4 * len(self.moving):
            self.entries = [(flow.due_s, flow.number) for flow in self.moving.values() if flow.due_s < INF]
            for flow in self.moving.values():
                flow.queued_s = flow.due_s
            heapify(self.entries)
