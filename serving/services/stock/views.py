"""Views of stock engines for policies that dispatch, pair engines, or choose the request to move."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from serving.engine.fleet import Fleet
from serving.protocols.load_report import LoadReport
from serving.services.stock.requests import StockEngines
from serving.vocabulary.current_event import Present
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request, demand_tokens


class StockFleet(Fleet):
    """The dispatcher's view; running requests and load reports come from ``StockEngines``."""

    __slots__ = ("_dispatch", "_stock")

    def __init__(self, model: str, replicas: Sequence[Replica], stock: StockEngines) -> None:
        super().__init__(model, replicas)
        self._stock, self._dispatch = stock, stock.reader()

    def running(self, replica: int) -> int:
        """Number of the engine's outstanding requests of which a token has arrived."""
        return self._stock.by_replica[replica].running

    def report(self, replica: int) -> LoadReport | None:
        """The current report; None: the engine is lost or takes no requests any more."""
        return self._stock.by_replica[replica].report() if replica in self else None

    def newly_reported(self) -> Sequence[int]:
        """Engines that changed since the last call."""
        return self._stock.changed(self._dispatch)


class StockInstances:
    """The view of a policy that pairs engines (``serving.protocols.migration.InstancesView``).

    ``moving``: source and destination of each moved request without a token since its move.
    """

    __slots__ = (
        "_fleet",
        "_pairing",
        "_period_ns",
        "_present",
        "_stock",
        "head_tokens",
        "model",
        "moving",
        "nearly_full",
    )

    def __init__(self, fleet: StockFleet, stock: StockEngines, present: Present, period_ns: int) -> None:
        self._fleet, self._stock, self._present, self._period_ns = fleet, stock, present, period_ns
        self.model, self.head_tokens, self._pairing = fleet.model, 0, stock.reader()
        self.nearly_full: Sequence[int] = ()
        self.moving: dict[int, tuple[int, int]] = {}

    @property
    def now_ns(self) -> int:
        """The current time."""
        return self._present.now_ns

    @property
    def round(self) -> int:
        """Number of periods that have ended."""
        return self._present.now_ns // self._period_ns

    @property
    def taking(self) -> Sequence[int]:
        """Engines that take requests, ascending."""
        return self._fleet.alive()

    @property
    def loading(self) -> Sequence[int]:
        """Empty: a loading engine cannot be reached yet."""
        return ()

    @property
    def leaving(self) -> Sequence[int]:
        """Engines that take no requests and still have some, ascending."""
        fleet = self._fleet
        return sorted(
            [member for member in fleet.members if member not in fleet and fleet.load(member, "outstanding")]
        )

    def short(self) -> Sequence[int]:
        """All engines that take requests: any may be short of memory."""
        return self._fleet.alive()

    def newly_reported(self) -> Sequence[int]:
        """Engines that changed since the last call and take requests."""
        return [replica for replica in self._stock.changed(self._pairing) if replica in self._fleet]

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """The engine's load, as dispatchers see it."""
        return self._fleet.load(replica, signal)

    def report(self, replica: int) -> LoadReport | None:
        """The engine's load report, as dispatchers see it."""
        return self._fleet.report(replica)

    def free_blocks(self, replica: int) -> int | None:
        """Free blocks that no waiting request needs."""
        report = self._fleet.report(replica)
        if report is None:
            return None
        return report.free_blocks - -(-report.waiting_tokens // report.block_tokens)

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """For each request that runs on the replica: tokens of its prompt and of its expected output."""
        own = self._stock.by_replica[replica].own
        requests = [one.request for _, one in sorted(own.items()) if one.began]
        return {one.id: demand_tokens(one) for one in requests}

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of the requests that run there."""
        own = self._stock.by_replica[replica].own
        return sum([one.request.prompt_tokens for one in own.values() if one.began])

    def kv_tokens(self, replica: int) -> int:
        """KV positions that its memory holds."""
        return self._stock.by_replica[replica].kv_capacity_tokens

    def engaged(self, replica: int) -> bool:
        """Whether a moved request without a token since its move left the engine or comes to it."""
        return any(replica in ends for ends in self.moving.values())


class StockSource:
    """The view of a policy that chooses a request (``serving.protocols.migration.SourceView``)."""

    __slots__ = ("_fleet", "_stock", "destination", "replica")

    def __init__(self, fleet: StockFleet, stock: StockEngines, replica: int, destination: int) -> None:
        self._fleet, self._stock, self.replica, self.destination = fleet, stock, replica, destination

    def decoding(self) -> Iterable[int]:
        """Requests of which a token has arrived, in the order in which they were sent there."""
        return [
            request for request, member in self._stock.by_replica[self.replica].own.items() if member.began
        ]

    def context_tokens(self, request: int) -> int:
        """The request's prompt tokens and generated tokens."""
        return self._stock.requests[request].known_tokens

    def priority(self, request: int) -> int:
        """The request's priority."""
        return self._request(request).priority

    def arrival_ns(self, request: int) -> int:
        """The request's arrival time."""
        return self._request(request).arrival_ns

    def report(self, replica: int) -> LoadReport | None:
        """The load report, as in ``StockInstances``."""
        return self._fleet.report(replica)

    def _request(self, request: int) -> Request:
        return self._stock.requests[request].request
