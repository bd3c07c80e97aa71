"""Invariants of stock engines: their books match what dispatchers see."""

from collections.abc import Iterator, Mapping

from serving.services.stock.service import Stock
from serving.vocabulary.request import Request, demand_tokens


def broken(requests: Mapping[int, Request], service: Stock) -> Iterator[str]:
    """Yield a sentence for each broken invariant."""
    fleet, stock = service.fleet, service.stock
    if set(stock.requests) - set(requests):
        yield "an engine has requests that are over"
    for replica, engine in stock.by_replica.items():
        here = {one.request.id for one in stock.requests.values() if one.replica == replica}
        if here != set(engine.own):
            yield f"replica {replica} has requests {sorted(engine.own)}, and {sorted(here)} are there"
        running = [member for member in engine.own.values() if member.began]
        tokens = sum([member.known_tokens for member in engine.own.values()])
        counted = engine.running_tokens + engine.waiting_tokens
        if (len(running), tokens) != (engine.running, counted):
            yield f"{engine.running} run on replica {replica} and {counted} tokens are there, not {tokens}"
        if replica not in fleet.members:
            continue
        own = fleet.sequence_tokens
        demand = sum([demand_tokens(member.request) + own for member in engine.own.values()])
        outstanding = fleet.load(replica, "outstanding"), fleet.load(replica, "kv_demand")
        if outstanding != (len(here), demand):
            yield f"{outstanding} are counted on replica {replica}, not {(len(here), demand)}"
    if service.hand_overs is None:
        return
    for request, hand_over in service.hand_overs.on_the_way.items():
        if request not in stock.requests or stock.requests[request].replica != hand_over.target:
            yield f"KV of request {request} is on its way to replica {hand_over.target}, where it is not"
    for replica, engine in stock.by_replica.items():
        if service.hand_overs.prefills(replica) and engine.running:
            yield f"replica {replica} prefills, and {engine.running} requests decode there"
