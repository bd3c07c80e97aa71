"""What monitoring reads from one instance at a scrape: of engines that run here, and of stock engines.

Stock engines report their gauges themselves (``Observed``, as old as the driver's last query). What they do
not report comes from the controller's record of what it sent them.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from serving.engine.engine import Engine
from serving.engine.instance_load import free_blocks_after
from serving.services.service import Service
from serving.services.stock.service import Stock
from serving.vocabulary.replica import Replica
from serving.vocabulary.step_counts import StepCounts


class Levels(NamedTuple):
    """See ``serving.protocols.signals.InstanceSignals``."""

    waiting: int
    running: int
    kv_use: float
    prompt_tokens: int
    in_flight_tokens: int


class Gauges(Protocol):
    """Reads the instances of one model."""

    def load(self, replica: Replica, now_ns: int) -> Levels:
        """The load of an instance that takes requests."""

    def first_arrival_ns(self, replica: int) -> int | None:
        """When the first request of the instance's queue arrived; None: its queue is empty."""

    def queue_head_ns(self) -> int | None:
        """When the first request arrived that is at no instance yet; None: there is none."""

    def prefix_tokens(self, replica: int) -> tuple[int, int]:
        """Tokens looked up in the instance's prefix cache so far, and those found."""


class EngineGauges:
    """Of engines that run here. Levels are those of the query's instant, coalesced or step by step."""

    __slots__ = ("_counts", "_engines", "_service")

    def __init__(self, engines: Mapping[int, Engine], service: Service, counts: StepCounts) -> None:
        self._engines, self._service, self._counts = engines, service, counts

    def load(self, replica: Replica, now_ns: int) -> Levels:
        """The load of an instance that takes requests."""
        engine, blocks = self._engines[replica.id], replica.kv_blocks
        free = self._free_blocks(engine, now_ns)
        waiting = (*engine.waiting, *engine.unseen_arrivals)
        begun = (*waiting, *engine.prefilling.values())
        return Levels(
            waiting=len(waiting),
            running=max(0, self._service.outstanding(replica.id) - len(waiting)),
            kv_use=min(1.0, max(0.0, 1 - free / blocks)) if blocks else 0.0,
            prompt_tokens=sum([progress.known_tokens - progress.computed for progress in begun]),
            in_flight_tokens=sum([progress.known_tokens for progress in (*begun, *engine.outgoing)]),
        )

    def _free_blocks(self, engine: Engine, now_ns: int) -> int:
        steps, *joins = self._counts.progress(engine.id, now_ns)
        free, ledger = free_blocks_after(engine, steps), engine.ledger
        for before, arrived in zip(joins, engine.joining, strict=False):
            for request in arrived if before < steps else ():
                tokens = request.known_tokens
                free -= ledger.blocks_for(tokens + steps - before) - ledger.blocks_for(tokens)
        return free

    def first_arrival_ns(self, replica: int) -> int | None:
        """When the first request of the instance's queue arrived."""
        engine = self._engines[replica]
        waiting = (*engine.waiting, *engine.unseen_arrivals)
        return min([progress.arrival_ns for progress in waiting], default=None)

    def queue_head_ns(self) -> int | None:
        """When the first request arrived that is at no instance yet."""
        return self._service.live.head_arrival_ns()

    def prefix_tokens(self, replica: int) -> tuple[int, int]:
        """Tokens looked up in the instance's prefix cache so far, and those found."""
        cache = self._engines[replica].ledger.cache
        return (0, 0) if cache is None else (cache.queried_tokens, cache.hit_tokens)


class StockGauges:
    """Of stock engines: as they reported last."""

    __slots__ = ("_stock",)

    def __init__(self, service: Stock) -> None:
        self._stock = service

    def load(self, replica: Replica, now_ns: int) -> Levels:
        """The load of an instance; what it does not report is as the controller has it in its books."""
        engine = self._stock.stock.by_replica[replica.id]
        seen, own = engine.seen, len(engine.own)
        waiting, running = own - engine.running, engine.running
        if seen is not None:
            waiting, running = seen.waiting, seen.running
        report = engine.report()
        used = report.total_blocks - report.free_blocks
        if seen is not None and seen.total_blocks:
            used = seen.used_blocks
        begun = self._stock.stock.own(replica.id).values()
        return Levels(
            waiting=waiting,
            running=running,
            kv_use=min(1.0, used / report.total_blocks) if report.total_blocks else 0.0,
            prompt_tokens=engine.waiting_tokens,
            in_flight_tokens=sum([one.request.prompt_tokens for one in begun if not one.began]),
        )

    def first_arrival_ns(self, replica: int) -> int | None:
        """When the first request arrived of those at the engine without a token."""
        waiting = self._stock.stock.own(replica).values()
        return min([one.request.arrival_ns for one in waiting if not one.began], default=None)

    def queue_head_ns(self) -> int | None:
        """When the first request arrived that waits for an engine to start."""
        return self._stock.queue_head_ns()

    def prefix_tokens(self, replica: int) -> tuple[int, int]:
        """Tokens looked up in the engine's prefix cache, and those found, since the engine started."""
        engine = self._stock.stock.by_replica.get(replica)
        seen = None if engine is None else engine.seen
        return (0, 0) if seen is None else (seen.queried_tokens, seen.found_tokens)


def gauges_of(service: Service, engines: Mapping[int, Engine], counts: StepCounts) -> Gauges:
    """The gauges of a model's instances."""
    if isinstance(service, Stock):
        return StockGauges(service)
    return EngineGauges(engines, service, counts)
