"""What a real run reports while it runs: the metrics endpoint (metrics.port=) and the log (log=)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from realexec.telemetry.counters import Counters
from realexec.telemetry.endpoint import Endpoint
from realexec.telemetry.exposition import Standing, exposition
from realexec.telemetry.log import JsonLog
from servetwin.config.config import RunConfig
from serving.controller import Controller
from serving.engine.progress import GONE
from serving.services.stock.service import Stock
from serving.vocabulary.driver import JournalSink
from serving.vocabulary.recorder import Recorder


@dataclass(frozen=True, slots=True)
class RunSinks:
    """Replaces the driver's recorder and journal."""

    recorder: Recorder
    journal: JournalSink | None


@contextmanager
def telling_of(
    config: RunConfig, controller: Controller, recorder: Recorder, journal: JournalSink | None
) -> Iterator[RunSinks]:
    """Yield the driver's recorder and journal, extended by the log and the metrics endpoint if configured."""
    with ExitStack() as stack:
        if config.log is not None:
            journal = JsonLog(sys.stderr, journal)
        if config.metrics.port is not None:
            counters = Counters(recorder, journal)
            recorder, journal = counters.recorder(), counters
            endpoint = Endpoint(
                config.metrics.port, lambda: exposition(counters, lambda: standings(controller))
            )
            stack.enter_context(endpoint)
            print(f"metrics at {endpoint.url}", file=sys.stderr, flush=True)
        yield RunSinks(recorder, journal)


def standings(controller: Controller) -> Mapping[int, Standing]:
    """Return the load of every live replica. Called from another thread, so it reads lengths only."""
    names = {}
    for number, engine in sorted(dict(controller.engines).items()):
        if engine.state in GONE:
            continue
        service = controller.services[engine.replica.model]
        if isinstance(service, Stock):
            instance = service.stock.by_replica[number]
            seen, all_of_it = instance.seen, instance.kv_capacity_tokens
            used = seen.used_blocks / seen.total_blocks if seen is not None and seen.total_blocks else None
            share = instance.running_tokens / max(1, all_of_it) if used is None else used
            names[number] = Standing(instance.running, len(instance.own) - instance.running, share)
        else:
            total = engine.ledger.total_blocks
            share = (total - engine.ledger.free_blocks) / max(1, total)
            waiting = len(engine.waiting) + len(engine.unseen_arrivals)
            names[number] = Standing(len(engine.running), waiting, share)
    return names
