"""Invariants of a language model in stages: paths, KV at every stage, circulating batches."""

from collections.abc import Iterator, Mapping

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, GONE, EngineState
from serving.record.stage_checks import broken_seats
from serving.services.language.service import LanguagePipeline


def broken(engines: Mapping[int, Engine], service: LanguagePipeline) -> Iterator[tuple[int, str]]:
    """Yield (number of the invariant, sentence) for each broken one."""
    seen = [queued.id for queued in service.queue]
    layers = service.stages[-1].part.last
    for batch in service.batches.values():
        members = [member.id for member in batch.members()]
        seen += members
        if not members:
            yield 10, f"batch {batch.id} circulates without requests"
        parts = [engines[replica].replica.part for replica in batch.path]
        spans = batch.spans or tuple([part.layers for part in parts])
        if [first for first, _ in spans] != [0, *[last for _, last in spans[:-1]]] or spans[-1][1] != layers:
            yield 4, f"batch {batch.id} does not pass the layers in order, once: {spans}"
        for replica, part, span in zip(batch.path, parts, spans, strict=True):
            engine = engines[replica]
            if engine.state in GONE or engine.state in AT_WORK or not part.has(*span):
                yield 3, f"batch {batch.id} passes replica {replica}, which is {engine.state.name}"
            live = service.live_stages
            there = len(part) if live is None else live.layers.get(replica, len(part))
            if engine.state is EngineState.LOADING and (live is None or span[1] - part.first > there):
                yield 3, f"replica {replica} is to run layers {span}, which it does not have"
            for request in batch.members():
                tokens = request.prompt_tokens + request.max_new_tokens
                if engine.ledger.held_blocks(request.id) != engine.ledger.blocks_for(tokens):
                    yield 2, f"replica {replica} does not hold the KV of request {request.id}"
    if len(seen) != len(set(seen)):
        yield 1, f"a request of {service.model} occurs in two places"
    yield from broken_seats(service.seats)
    for stage in service.cuts.all():
        for replica in stage.fleet.members:
            count = service.outstanding(replica)
            if stage.fleet.load(replica, "outstanding") != count:
                yield 12, f"replica {replica} has {count} requests, and is counted with others"
            if set(engines[replica].ledger.holders()) != set(service.held(replica)):
                yield 2, f"replica {replica} holds KV of requests that do not pass it"
