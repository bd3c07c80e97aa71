"""Checks the invariants after every event (docs/contributing/INVARIANTS.md has the numbers used here)."""

from collections.abc import Iterable

from serving.controller import Controller
from serving.elastic.deployment import Deployment
from serving.elastic.elastic import Elastic
from serving.elastic.stage_control import StageControl
from serving.engine.engine import Engine
from serving.engine.pipelined import PipelinedEngine
from serving.engine.progress import EngineState
from serving.engine.request_state import RequestState, requests_at
from serving.kv.migration_rules import HALTING
from serving.parameters.copies import PooledCopies
from serving.parameters.parameter_pool import broken
from serving.parameters.residency import Residency
from serving.record.batch_checks import broken as broken_batches
from serving.record.cache_checks import broken as broken_cache
from serving.record.load_checks import broken as broken_loads
from serving.record.stage_checks import broken as broken_stages
from serving.record.stage_checks import broken_hosts
from serving.record.stock_checks import broken as broken_stock
from serving.services.colocated.migrating import Migrating
from serving.services.colocated.service import Colocated
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.services.disaggregated.instances import uncomputed_tokens
from serving.services.disaggregated.service import Disaggregated
from serving.services.language.service import LanguagePipeline
from serving.services.pipeline.service import Pipeline
from serving.services.stock.service import Stock
from serving.vocabulary.request import demand_tokens


class InvariantError(AssertionError):
    """A broken invariant; the message begins with its number."""


def check(controller: Controller) -> None:
    """Check every invariant the control plane can see by itself. O(requests in flight)."""
    in_flight = len(controller.requests)
    ended = controller.finished + controller.rejected + controller.failed + controller.aborted
    sentence = f"requests conserved: {controller.arrived} arrived, {ended} ended, {in_flight} in flight"
    _demand(1, controller.arrived == ended + in_flight, sentence)
    if controller.closed:
        return  # services and instances still list requests that failed at the end of the run
    held = sum(service.queued for service in controller.services.values())
    for engine in controller.engines.values():
        service = controller.services[engine.replica.model]
        _check_engine(engine, set(service.held(engine.id)))
        held += sum([state is not RequestState.FINISHED for _, state in requests_at(engine)])
    for service in controller.services.values():
        if isinstance(service, Pipeline | LanguagePipeline | Stock):
            held += service.running
        else:
            held += len(service.live.requests)
    _demand(1, held == in_flight, f"requests conserved: replicas hold {held} of {in_flight}")
    for service in controller.services.values():
        if isinstance(service, Disaggregated):
            _check_split(controller, service)
        elif isinstance(service, DecodeMigrating):
            _check_split(controller, service.inner, service)
            _check_migrations(controller, service, list(service.inner.hand_overs.demands))
        elif isinstance(service, Stock):
            for sentence in broken_stock(controller.requests, service):
                _demand(12, False, sentence)
        elif isinstance(service, Colocated):
            _check_colocated(controller, service)
        elif isinstance(service, Migrating):
            _check_colocated(controller, service.inner, True)
            _check_migrations(controller, service, service.inner.fleet.members)
        elif isinstance(service, LanguagePipeline):
            for number, sentence in broken_batches(controller.engines, service):
                _demand(number, False, sentence)
        elif isinstance(service, Pipeline):
            for number, sentence in broken_stages(controller.engines, service):
                _demand(number, False, sentence)
        if isinstance(service, Pipeline | LanguagePipeline) and isinstance(controller.elastic, StageControl):
            for number, sentence in broken_hosts(controller.elastic, service):
                _demand(number, False, sentence)
    if isinstance(controller.elastic, Elastic):
        _check_deployment(controller, controller.elastic.deployment)


def _check_engine(engine: Engine, coming: set[int]) -> None:
    """``coming``: requests with reserved memory whose KV is in transit, computed by layers, or fetched."""
    ledger, replica = engine.ledger, engine.replica
    held = sum(ledger.held_blocks(request) for request in ledger.holders())
    if ledger.cache is not None:
        held -= ledger.cache.shared_blocks  # a shared block exists once
        for sentence in broken_cache(ledger):
            _demand(2, False, f"{sentence} (replica {replica.id})")
    total = ledger.total_blocks
    _demand(2, 0 <= ledger.free_blocks <= total, f"free KV blocks {ledger.free_blocks} of {total}")
    _demand(2, held + ledger.free_blocks == total, f"KV blocks conserved on replica {replica.id}")
    there = requests_at(engine)
    admitted = {request for request, state in there if state is not RequestState.WAITING} | coming
    _demand(2, set(ledger.holders()) <= admitted, "only admitted requests hold KV blocks")
    _demand(2, engine.prefilling.keys() <= engine.running.keys(), "a prompt in progress is admitted")
    if engine.state is not EngineState.LOST:
        swapped = {queued.id for queued in engine.waiting if queued.swapped}
        _demand(2, set(engine.host.holders()) == swapped, "host memory has the KV of those who wait for it")
        _demand(2, engine.host.held_blocks <= engine.host.blocks, "host memory holds what fits into it")
    decoding = len(engine.running) - len(engine.prefilling) - len(engine.ended)
    _demand(2, ledger.decoding == decoding, "decoding set counted")
    order = [request for request, _ in there]
    _demand(1, len(order) == len(set(order)), "no request is on a replica twice")
    _check_work(engine, coming, order)
    for progress in engine.prefilling.values():
        computed, known = progress.computed, progress.known_tokens
        whole = known + isinstance(engine, PipelinedEngine)  # its last positions may be in flight
        _demand(4, 0 <= computed < whole, "prompt positions are computed in order, once")


def _check_work(engine: Engine, coming: set[int], order: list[int]) -> None:
    number, state = engine.id, engine.state
    loading = state in (EngineState.LOADING, EngineState.VACANT)
    _demand(3, not (loading and engine.running), f"replica {number} runs before its layers are loaded")
    idle = state in (EngineState.IDLE, EngineState.LOST)
    # An idle replica may have requests whose KV will be fetched (outgoing). It may also have queued requests
    # that wait for memory, held by outgoing requests or by KV in transit to it.
    memory_held = engine.outgoing or coming
    works = (
        engine.running or engine.attached or (engine.waiting and not memory_held) or engine.unseen_arrivals
    )
    _demand(10, not (idle and works), f"work conservation: replica {number} idles with requests")
    _demand(11, not (engine.hands_over and engine.ledger.decoding), f"prefill replica {number} decodes")


def _check_split(
    controller: Controller, service: Disaggregated, moving: DecodeMigrating | None = None
) -> None:
    """The sums that scalers see match the requests; a request moving between instances counts once."""
    engines = [
        own_engine for own_engine in controller.engines.values() if own_engine.replica.model == service.model
    ]
    requests, hand_overs = controller.requests, service.hand_overs
    # A pass begun as prefill hands its requests over, even if the replica has turned to decoding since.
    prefill = [
        own_engine for own_engine in engines if own_engine.hands_over or _in_hand_over_pass(own_engine)
    ]
    begun = [
        progress
        for prefill_engine in prefill
        for progress in (*prefill_engine.waiting, *prefill_engine.prefilling.values())
    ]
    tokens = sum(request.prompt_tokens for request in service.queue.requests) + sum(
        progress.known_tokens - progress.computed for progress in begun
    )
    tokens += sum(request.prompt_tokens for request in service.live.requests)
    tokens += sum(uncomputed_tokens(own_engine) for own_engine in engines if own_engine not in prefill)
    _demand(12, service.backlog_tokens == tokens, f"{service.backlog_tokens} backlog tokens, {tokens} found")
    comes = {own_engine.id: [] if moving is None else moving.kept(own_engine.id) for own_engine in engines}
    paused = {own_engine.id: [] if moving is None else moving.paused(own_engine.id) for own_engine in engines}
    outgoing = {
        one.id: [progress for progress in one.outgoing if progress.id not in paused[one.id]]
        for one in engines
    }
    unsent = sum(progress.known_tokens for batches in outgoing.values() for progress in batches)
    _demand(12, service.migrating_tokens == unsent, "KV to be moved is that of completed prompts")
    coming = {engine.id: hand_overs.batch_to(engine.id) for engine in engines}
    on_their_way = {request for batch in coming.values() for request in batch}
    wanted = 0
    for engine in engines:
        room = engine.replica.room_tokens
        staying = [*coming[engine.id], *(progress.id for progress in engine.attached)]
        if engine not in prefill:
            staying += [*engine.running, *(progress.id for progress in engine.waiting), *paused[engine.id]]
        demand = sum(hand_overs.need_tokens(requests[request], room) for request in staying)
        pulled_tokens, pulled = service.host.kept(engine.id)
        demand += pulled_tokens
        comes_tokens = sum(hand_overs.need_tokens(requests[progress], room) for progress in comes[engine.id])
        demand, pulled = demand + comes_tokens, pulled + len(comes[engine.id])
        demanded = hand_overs.demands.get(engine.id, 0)
        _demand(
            12, demanded == demand, f"room for {demanded} tokens is kept on replica {engine.id}, not {demand}"
        )
        seats, seated = hand_overs.reserved_requests.get(engine.id, 0), len(staying) + pulled
        _demand(12, seats == seated, f"{seats} seats are kept on replica {engine.id}, not {seated}")
        decoding, most = engine.ledger.decoding, engine.max_num_seqs
        _demand(13, decoding <= most, f"{decoding} decode on replica {engine.id}, which has {most} seats")
        waiting = [progress.id for progress in outgoing[engine.id] if progress.id not in on_their_way]
        wanted += (
            demand
            - comes_tokens
            + sum(hand_overs.need_tokens(requests[progress], room) for progress in waiting)
        )
    _demand(12, hand_overs.demand_tokens == wanted, f"demand {hand_overs.demand_tokens} is not {wanted}")


def _in_hand_over_pass(engine: Engine) -> bool:
    return engine.handing_over and engine.handing_over_tokens() > 0


def _check_colocated(controller: Controller, service: Colocated, migrates: bool = False) -> None:
    """The fleet counts on each replica the requests that are there or are known to decode there."""
    fleet, requests, places = service.fleet, controller.requests, service.sharing.places
    begun = {request.id for request in service.live.requests}
    _demand(12, places.keys() <= begun, "places are known of requests in batches")
    for replica in fleet.members:
        engine = controller.engines[replica]
        here = [request for request, state in requests_at(engine) if state is not RequestState.FINISHED]
        here += [request for request, place in places.items() if place == replica]
        demand = fleet.load(replica, "outstanding")
        _demand(
            12, demand == len(here), f"{demand} requests are counted on replica {replica}, not {len(here)}"
        )
        tokens = sum(demand_tokens(requests[request]) + fleet.sequence_tokens for request in here)
        demand = fleet.load(replica, "kv_demand")
        _demand(12, demand == tokens, f"{demand} tokens are counted on replica {replica}, not {tokens}")
        if fleet.reports is not None:
            high = sum([requests[request].priority > 0 for request in here])
            for sentence in broken_loads(fleet.reports, engine, high, migrates):
                _demand(14, False, sentence)


def _check_migrations(
    controller: Controller, service: Migrating | DecodeMigrating, replicas: Iterable[int]
) -> None:
    """Each instance is in at most one migration, and only destinations reserve blocks."""
    under_way = service.migrations.of_replica
    vacant = [number for number in under_way if controller.engines[number].state is EngineState.VACANT]
    _demand(9, not vacant, f"replicas {vacant} gave their GPUs back in the middle of a migration")
    for replica in {*replicas, *under_way}:
        engine, migration = controller.engines[replica], under_way.get(replica)
        coming = list(service.migrations.moves.requests_to(replica))
        expected = list[int]()
        if migration is not None:
            ends = (migration.source, migration.destination)
            _demand(9, all(under_way.get(one) is migration for one in ends), f"migration between {ends}")
            if migration.move is not None and replica == migration.destination:
                expected = [migration.request]
        _demand(9, coming == expected, f"blocks are kept on replica {replica} for {coming}, not {expected}")
        decoding = set(coming) & {request for request, _ in requests_at(engine)}
        _demand(9, not decoding, f"requests {decoding} are on replica {replica} and still come to it")
        preparing = migration is not None and migration.phase in HALTING
        _demand(9, engine.halts <= preparing, f"replica {replica} halts though no migration wants it to")


def _check_deployment(controller: Controller, deployment: Deployment) -> None:
    owned = [
        gpu for live_instance in deployment.instances.live.values() for gpu in live_instance.replica.gpus
    ]
    _demand(8, len(owned) == len(set(owned)), "no GPU belongs to two replicas")
    for number, instance in deployment.instances.live.items():
        state = controller.engines[number].state
        loading = state is EngineState.LOADING
        _demand(
            3, loading == (instance.state == "loading"), f"replica {number} is {instance.state} and {state}"
        )
        _check_layers(controller.engines[number], deployment.residency)
    copies = deployment.copies
    if isinstance(copies, PooledCopies):
        for sentence in broken(copies.pool):
            _demand(5, False, sentence)


def _check_layers(engine: Engine, residency: Residency) -> None:
    """Layers that run are loaded; a serving instance may lack its last layers (overlap)."""
    endpoint, part = ("replica", engine.id), engine.replica.part
    there = residency.layers(endpoint, part)
    _demand(3, engine.state is EngineState.LOADING or there > 0, f"replica {engine.id} serves without layers")
    if engine.layer_pass is not None:
        first, last = engine.layer_pass.layers
        sentence = f"replica {engine.id} runs layers [{first}, {last}) and has {there} of {part}"
        _demand(3, residency.has_layers(endpoint, part.model, first, last), sentence)


def _demand(number: int, holds: bool, sentence: str) -> None:
    if not holds:
        raise InvariantError(f"invariant {number}: {sentence}")
