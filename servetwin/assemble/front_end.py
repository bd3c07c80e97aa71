"""The way of requests to an engine and of tokens to their clients, around the simulated engines."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from hwmodels.step_times.front_end import NO_FRONT_END, FrontEnd
from servetwin.config.config import RunConfig
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_BLOCK_ROWS = 65_536


def front_end_of(config: RunConfig) -> FrontEnd:
    """Return what the configuration says about the engine's front end; stages have none, as in QUART."""
    if config.system.in_stages:
        return NO_FRONT_END
    declared = config.engine.front_end
    return FrontEnd(
        way_in_s=declared.way_in_s,
        request_s=declared.request_s,
        prompt_token_s=declared.prompt_token_s,
        way_out_s=declared.way_out_s,
        running_s=declared.running_s,
        api_servers=declared.api_server_count,
        error_s=declared.error_s,
        source=declared.source,
    )


class FrontDoor:
    """The API server processes of all instances together: a request takes the one that is free first.

    Requests of a trace come through ``entered_ns`` and ``in_order``, those of closed-loop clients one by one
    through ``enter``, which keeps in ``sent_ns`` when the client of each sent it.
    """

    def __init__(self, front_end: FrontEnd, instances: int) -> None:
        self.front_end, self._instances = front_end, max(1, instances)
        self._free_ns = [0] * (front_end.api_servers * self._instances)
        self.sent_ns: dict[int, int] = {}
        self._sent_of_trace_ns: Ints | None = None
        self._soonest_later_ns: Ints | None = None
        self._way_in_ns = round(front_end.way_in_s * NS_PER_S)
        self._before = (0, 0)  # when the last used process was free before its request, and after

    def enter(self, request: Request, sent_ns: int) -> int:
        """Return when the engine's side has a request that its client sends at ``sent_ns``."""
        free_ns = self._free_ns[0]
        ready_ns = max(free_ns, sent_ns) + round(self.front_end.busy_s(request.prompt_tokens) * NS_PER_S)
        heapreplace(self._free_ns, ready_ns)
        self._before = free_ns, ready_ns
        self.sent_ns[request.id] = sent_ns
        return ready_ns + self._way_in_ns

    def undo(self) -> None:
        """Take back the last ``enter``: another client sends before that request."""
        free_ns, ready_ns = self._before
        self._free_ns[self._free_ns.index(ready_ns)] = free_ns
        heapify(self._free_ns)

    def way_out_ns(self, decoding: int) -> int:
        """Return how long a token takes to its client with ``decoding`` requests in all instances."""
        front = self.front_end
        return round((front.way_out_s + front.running_s * decoding / self._instances) * NS_PER_S)

    def entered_ns(self, sent_ns: Ints, prompt_tokens: Ints) -> Ints:
        """Return when the engine's side has each request of a trace, ``sent_ns`` ascending.

        As ``enter`` would of each in turn, to the nanosecond.
        """
        import numpy as np

        front = self.front_end
        busy_s = front.request_s + front.prompt_token_s * prompt_tokens
        busy_ns = np.rint(busy_s * NS_PER_S).astype(np.int64)
        entered_ns = _ready_ns(sent_ns, busy_ns, len(self._free_ns)) + self._way_in_ns
        self._sent_of_trace_ns = sent_ns
        soonest_ns = np.minimum.accumulate(entered_ns[::-1])[::-1]
        if not np.array_equal(soonest_ns, entered_ns):
            self._soonest_later_ns = np.append(soonest_ns[1:], np.iinfo(np.int64).max)
        return entered_ns

    def in_order(self, arrivals: Iterator[tuple[Request, int]]) -> Iterator[tuple[Request, int]]:
        """Yield the trace's requests, which have the times of ``entered_ns``, by time and number.

        With several processes a short prompt may overtake a long one that was sent before it.
        """
        later_ns, self._soonest_later_ns = self._soonest_later_ns, None
        return arrivals if later_ns is None else _by_arrival(arrivals, _numbers_of(later_ns))

    def add_client_times(self, columns: dict[str, np.ndarray]) -> None:
        """Make ``arrival_ns``, ``ttft_ms``, ``e2e_ms`` the client's; add ``entered_ns``, ``ttft_engine_ms``.

        Every token of a request leaves as late as its first: with the requests that decode on its replica
        then. So TPOT is the engine's.
        """
        columns["entered_ns"], columns["ttft_engine_ms"] = columns["arrival_ns"], columns["ttft_ms"]
        columns["arrival_ns"] = self._sent_of(columns["request"])
        running = decoding_at_first_token(columns)
        out_ms = 1e3 * (self.front_end.way_out_s + self.front_end.running_s * running)
        out_ms += (columns["entered_ns"] - columns["arrival_ns"]) / 1e6
        columns["ttft_ms"] = columns["ttft_engine_ms"] + out_ms
        columns["e2e_ms"] = columns["e2e_ms"] + out_ms

    def sent_of(self, request: Request) -> int:
        """Return when the client sent a request that has come through."""
        whole = self._sent_of_trace_ns
        return self.sent_ns[request.id] if whole is None else int(whole[request.id])

    def _sent_of(self, requests: Ints) -> Ints:
        import numpy as np

        if self._sent_of_trace_ns is not None:
            return self._sent_of_trace_ns[requests]
        return np.array([self.sent_ns[request] for request in requests.tolist()], dtype=np.int64)


def _ready_ns(sent_ns: Ints, busy_ns: Ints, processes: int) -> Ints:
    """Return when requests, sent in this order, are through the first process that is free for each."""
    import numpy as np

    if processes == 1:
        work_ns = np.cumsum(busy_ns)
        # Behind the request whose wait ends last, the process has no pause.
        return work_ns + np.maximum.accumulate(sent_ns - (work_ns - busy_ns))
    alone_ns = sent_ns + busy_ns
    through = np.searchsorted(np.sort(alone_ns), sent_ns, side="right")
    if busy_ns.min(initial=1) > 0 and (np.arange(len(sent_ns)) - through < processes).all():
        return alone_ns  # nobody waits
    free_ns = [0] * processes
    ready_ns = array("q")
    for sent, busy in zip(_numbers_of(sent_ns), _numbers_of(busy_ns), strict=True):
        ready = max(free_ns[0], sent) + busy
        heapreplace(free_ns, ready)
        ready_ns.append(ready)
    return np.frombuffer(ready_ns, dtype=np.int64)


def _numbers_of(column: Ints) -> Iterator[int]:
    """Yield a column's numbers; a whole column of Python's integers takes 40 bytes each."""
    for at in range(0, len(column), _BLOCK_ROWS):
        yield from column[at : at + _BLOCK_ROWS].tolist()


def _by_arrival(
    arrivals: Iterator[tuple[Request, int]], soonest_later_ns: Iterable[int]
) -> Iterator[tuple[Request, int]]:
    """Yield requests by arrival and number; after the n-th none comes before ``soonest_later_ns[n]``."""
    waiting: list[tuple[int, int, tuple[Request, int]]] = []
    for arrival, later_ns in zip(arrivals, soonest_later_ns, strict=True):
        heappush(waiting, (arrival[0].arrival_ns, arrival[0].id, arrival))
        while waiting and waiting[0][0] <= later_ns:
            yield heappop(waiting)[-1]


def decoding_at_first_token(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return how many requests decode on a request's replica at its first token, itself included."""
    import numpy as np

    replica, first, last = columns["replica"], columns["first_token_ns"], columns["finish_ns"]
    by_replica = np.argsort(replica, kind="stable")
    ends = np.flatnonzero(np.diff(replica[by_replica])) + 1
    running = np.zeros(len(replica), dtype=np.int32)
    for rows in np.split(by_replica, ends):
        begun = np.searchsorted(np.sort(first[rows]), first[rows], side="right")
        running[rows] = begun - np.searchsorted(np.sort(last[rows]), first[rows], side="left")
    return running
