"""The way of requests to an engine and of tokens to their clients, around the simulated engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from hwmodels.step_times.front_end import NO_FRONT_END, FrontEnd
from servetwin.config.config import RunConfig
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np


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

    A request's ``arrival_ns`` becomes the time at which the engine's side has it. ``sent_ns`` remembers when
    its client sent it.
    """

    def __init__(self, front_end: FrontEnd, instances: int) -> None:
        self.front_end, self._instances = front_end, max(1, instances)
        self._free_ns = [0] * (front_end.api_servers * self._instances)
        self.sent_ns: dict[int, int] = {}
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

    def delayed(self, arrivals: Iterator[tuple[Request, int]]) -> Iterator[tuple[Request, int]]:
        """Yield requests when the engine's side has them, in that order.

        With several processes a short prompt may overtake a long one that was sent before it.
        """
        waiting: list[tuple[int, int, Request, int]] = []
        for request, output_tokens in arrivals:
            while waiting and waiting[0][0] <= request.arrival_ns:
                yield _arriving(heappop(waiting))
            entered_ns = self.enter(request, request.arrival_ns)
            heappush(waiting, (entered_ns, request.id, request, output_tokens))
        while waiting:
            yield _arriving(heappop(waiting))

    def add_client_times(self, columns: dict[str, np.ndarray]) -> None:
        """Make ``arrival_ns``, ``ttft_ms``, ``e2e_ms`` the client's; add ``entered_ns``, ``ttft_engine_ms``.

        Every token of a request leaves as late as its first: with the requests that decode on its replica
        then. So TPOT is the engine's.
        """
        import numpy as np

        columns["entered_ns"], columns["ttft_engine_ms"] = columns["arrival_ns"], columns["ttft_ms"]
        sent = [self.sent_ns[request] for request in columns["request"].tolist()]
        columns["arrival_ns"] = np.array(sent, dtype=np.int64)
        running = decoding_at_first_token(columns)
        out_ms = 1e3 * (self.front_end.way_out_s + self.front_end.running_s * running)
        around_ms = (columns["entered_ns"] - columns["arrival_ns"]) / 1e6 + out_ms
        columns["ttft_ms"] = columns["ttft_engine_ms"] + around_ms
        columns["e2e_ms"] = columns["e2e_ms"] + around_ms


def _arriving(entry: tuple[int, int, Request, int]) -> tuple[Request, int]:
    entered_ns, _, request, output_tokens = entry
    return replace(request, arrival_ns=entered_ns), output_tokens


def decoding_at_first_token(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return how many requests decode on a request's replica at its first token, itself included."""
    import numpy as np

    replica, first, last = columns["replica"], columns["first_token_ns"], columns["finish_ns"]
    running = np.zeros(len(replica), dtype=np.int64)
    for one in np.unique(replica):
        rows = replica == one
        begun = np.searchsorted(np.sort(first[rows]), first[rows], side="right")
        ended = np.searchsorted(np.sort(last[rows]), first[rows], side="left")
        running[rows] = begun - ended
    return running
