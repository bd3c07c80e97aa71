"""Tracks which requests stock engines have and how far they are; these engines queue and batch themselves.

There are two sources. The controller's own record is exact: what it sent, and which tokens came back. What an
engine reports (``Observed``) has an age and may count requests of other clients. A load report is the
engine's report, updated by what the record shows since then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.protocols.load_report import LoadReport
from serving.vocabulary.events import Observed
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request, demand_tokens


@dataclass(slots=True)
class StockRequest:
    """A request at an engine. ``generated``: tokens in total; ``began``: one arrived since it was sent there.

    ``tries``: how often its connection broke.
    """

    request: Request
    replica: int
    generated: int = 0
    began: bool = False
    tries: int = 0

    @property
    def known_tokens(self) -> int:
        """Its prompt tokens and generated tokens."""
        return self.request.prompt_tokens + self.generated


class StockEngine:
    """The controller's record of one engine.

    ``own``: its requests, by id. ``running``: number of its requests that have begun; ``running_tokens``:
    number of their tokens. ``waiting_tokens``: number of tokens of its other requests.
    """

    __slots__ = (
        "_block_tokens", "_high_running", "_report", "_seen", "_seen_foreign", "_seen_own_tokens",
        "_total_blocks", "own", "running", "running_tokens", "waiting_tokens",
    )  # fmt: skip

    def __init__(self, replica: Replica) -> None:
        self._total_blocks, self._block_tokens = replica.kv_blocks, replica.block_tokens
        self.own: dict[int, StockRequest] = {}
        self.running = self.running_tokens = self.waiting_tokens = 0
        self._seen: Observed | None = None
        self._seen_own_tokens = self._seen_foreign = self._high_running = 0
        self._report: LoadReport | None = None

    @property
    def kv_capacity_tokens(self) -> int:
        """Memory in tokens, as the engine reported it, or as its replica was described."""
        return self._total_blocks * self._block_tokens

    @property
    def seen(self) -> Observed | None:
        """The engine's last report; None: there is none yet."""
        return self._seen

    def add(self, stock_request: StockRequest) -> None:
        """Add a request sent to the engine; it waits until a token arrives."""
        self.own[stock_request.request.id] = stock_request
        stock_request.began = False
        self.waiting_tokens += stock_request.known_tokens
        self._report = None

    def remove(self, request: int) -> StockRequest:
        """Remove a request that has ended there or leaves."""
        stock_request = self.own.pop(request)
        if stock_request.began:
            self._count_running(-1, stock_request)
        else:
            self.waiting_tokens -= stock_request.known_tokens
        self._report = None
        return stock_request

    def got(self, request: int, tokens: int) -> bool:
        """Record arrived tokens; returns whether they are the first since the request was sent there."""
        stock_request, first = self.own[request], False
        if not stock_request.began and tokens:
            self.waiting_tokens -= stock_request.known_tokens
            stock_request.began = first = True
            self._count_running(1, stock_request)
        stock_request.generated += tokens
        if stock_request.began:
            self.running_tokens += tokens
        self._report = None
        return first

    def _count_running(self, sign: int, stock_request: StockRequest) -> None:
        self.running += sign
        self.running_tokens += sign * stock_request.known_tokens
        if stock_request.request.priority > 0:
            self._high_running += sign

    def observe(self, event: Observed) -> None:
        """Record the engine's report of its state."""
        self._seen, self._report = event, None
        if event.total_blocks:
            self._total_blocks, self._block_tokens = event.total_blocks, event.block_tokens
        self._seen_own_tokens = self.running_tokens
        self._seen_foreign = max(0, event.running + event.waiting - len(self.own))

    def report(self) -> LoadReport:
        """The current load report; other clients' requests count as running, never as waiting."""
        if self._report is None:
            self._report = self._new_report()
        return self._report

    def _new_report(self) -> LoadReport:
        block, total = self._block_tokens, self._total_blocks
        if self._seen is None or not self._seen.total_blocks:
            used = -(-self.running_tokens // block)
        else:
            used = self._seen.used_blocks + (self.running_tokens - self._seen_own_tokens) // block
        waiting = [stock_request for stock_request in self.own.values() if not stock_request.began]
        return LoadReport(
            total_blocks=total,
            watermark_blocks=0,
            block_tokens=block,
            free_blocks=min(total, max(0, total - used)),
            running=self.running + self._seen_foreign,
            waiting=len(waiting),
            preempted=0,
            first_waiting_tokens=waiting[0].known_tokens if waiting else 0,
            waiting_tokens=self.waiting_tokens,
            high_running=self._high_running,
            high_waiting=sum([stock_request.request.priority > 0 for stock_request in waiting]),
        )


class StockEngines:
    """The engines of one model. ``requests``: at any of them, by id."""

    __slots__ = ("_changed", "by_replica", "requests")

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self.by_replica = {replica.id: StockEngine(replica) for replica in replicas}
        self.requests: dict[int, StockRequest] = {}
        self._changed: list[dict[int, None]] = []  # one set of changed engines per reader

    def join(self, replica: Replica) -> None:
        """An engine takes requests, for the first time or again; reports from before it slept are dropped."""
        if not self.own(replica.id):
            self.by_replica[replica.id] = StockEngine(replica)
        self._change(replica.id)

    def own(self, replica: int) -> Mapping[int, StockRequest]:
        """The requests at an engine."""
        engine = self.by_replica.get(replica)
        return {} if engine is None else engine.own

    def send(self, stock_request: StockRequest, replica: int) -> None:
        """Record that a request is sent to an engine, for the first time or again."""
        stock_request.replica = replica
        self.requests[stock_request.request.id] = stock_request
        self.by_replica[replica].add(stock_request)
        self._change(replica)

    def take(self, request: int) -> StockRequest:
        """Remove a request from its engine."""
        stock_request = self.requests.pop(request)
        self.by_replica[stock_request.replica].remove(request)
        self._change(stock_request.replica)
        return stock_request

    def got(self, replica: int, request: int, tokens: int) -> bool:
        """See ``StockEngine``."""
        assert self.requests[request].replica == replica, f"request {request} is not at replica {replica}"
        self._change(replica)
        return self.by_replica[replica].got(request, tokens)

    def observe(self, event: Observed) -> None:
        """See ``StockEngine``."""
        self._change(event.replica)
        self.by_replica[event.replica].observe(event)

    def _change(self, replica: int) -> None:
        for changed in self._changed:
            changed[replica] = None

    def reader(self) -> int:
        """Register a reader of changes and return its number; all engines are new to it."""
        self._changed.append(dict.fromkeys(self.by_replica))
        return len(self._changed) - 1

    def changed(self, reader: int) -> Sequence[int]:
        """Engines that changed since this reader's last call."""
        changed, self._changed[reader] = list(self._changed[reader]), {}
        return changed

    @property
    def kv_tokens(self) -> int:
        """The tokens that requests at engines are expected to have."""
        whole: Mapping[int, StockRequest] = self.requests
        return sum([demand_tokens(report.request) for report in whole.values()])
