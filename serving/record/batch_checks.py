"""What must hold of a language model in stages: paths, KV at every stage, batches that go round."""

from collections.abc import Iterator, Mapping

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, GONE
from serving.record.stage_checks import broken_seats
from serving.services.language_pipeline import LanguagePipeline


def broken(engines: Mapping[int, Engine], service: LanguagePipeline) -> Iterator[tuple[int, str]]:
    """(number of the invariant, sentence) of each that does not hold."""
    seen = [one.id for one in service.queue]
    for batch in service.batches.values():
        members = [one.id for one in batch.members()]
        seen += members
        if not members:
            yield 10, f"batch {batch.id} goes round without requests"
        parts = [engines[replica].replica.part for replica in batch.path]
        if parts != [stage.part for stage in service.stages]:
            yield 4, f"batch {batch.id} does not pass the stages in order, once: {parts}"
        for replica in batch.path:
            engine = engines[replica]
            if engine.state in GONE or engine.state in AT_WORK:
                yield 3, f"batch {batch.id} passes replica {replica}, which is {engine.state.name}"
            for request in batch.members():
                tokens = request.prompt_tokens + request.max_new_tokens
                if engine.ledger.held_blocks(request.id) != engine.ledger.blocks_for(tokens):
                    yield 2, f"replica {replica} does not hold the KV of request {request.id}"
    if len(seen) != len(set(seen)):
        yield 1, f"a request of {service.model} is in two places"
    yield from broken_seats(service.seats)
    for stage in service.stages:
        for replica in stage.fleet.members:
            count = service.outstanding(replica)
            if stage.fleet.load(replica, "outstanding") != count:
                yield 12, f"replica {replica} has {count} requests, and is counted with others"
            if set(engines[replica].ledger.holders()) != set(service.held(replica)):
                yield 2, f"replica {replica} holds KV of requests that do not pass it"
