"""Builds a controller from its parts. Only this module knows every state machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from serving.controller import Controller
from serving.elastic.elastic import Elastic
from serving.elastic.fixed import FixedReplicas
from serving.elastic.replica_control import ReplicaControl
from serving.elastic.setup import ElasticParts, live_setups
from serving.elastic.stage_control import StageControl
from serving.elastic.stage_setup import StageScaling
from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet, SchedulerBypass
from serving.engine.load_reports import LoadReports
from serving.engine.pool import EngineOptions, EnginePool
from serving.engine.progress import EngineState
from serving.kv.handover import HandOverRules
from serving.kv.migration_rules import MigrationRules
from serving.kv.moves import Moves
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.parameters.loads import replicas_of
from serving.protocols.batch import Batcher
from serving.protocols.load_report import ReportsAt
from serving.protocols.migration import Migrator
from serving.protocols.splitting import SupportsDecodePlaces
from serving.services.aborts import Aborting, Aborts
from serving.services.colocated.migrating import Migrating
from serving.services.colocated.service import Colocated, Queue
from serving.services.colocated.victim_moves import VictimParts
from serving.services.disaggregated.conversions import ConvertParts
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.services.disaggregated.service import Disaggregated
from serving.services.language.service import LanguagePipeline
from serving.services.language.setup import LanguageSetup
from serving.services.pipeline.service import Pipeline
from serving.services.pipeline.setup import PipelineSetup
from serving.services.rounds import Rounds
from serving.services.service import Routes, Service, Streaming
from serving.services.staged import StagedService
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stock.service import Stock, StockParts
from serving.vocabulary.actions import Load
from serving.vocabulary.current_event import Present
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True)
class MigrationParts:
    """Migration of running requests: ``migrator`` decides once per ``period_ns``; ``rules`` by model.

    ``victims``: migrates requests that would otherwise be preempted; None: they are preempted.
    """

    migrator: Migrator
    period_ns: int
    rules: Mapping[str, MigrationRules]
    victims: VictimParts | None = None


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """Models cut into stages: ``setups`` by model; ``seats``: the GPUs that models without KV share.

    ``scaling``: starts and stops replicas; None: the set of replicas never changes.
    """

    setups: Mapping[str, PipelineSetup | LanguageSetup]
    seats: GpuSeats
    scaling: StageScaling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of the services of all models.

    ``hand_overs``: rules of the models with separate prefill and decode instances.
    ``max_num_batched_tokens``: maximum number of prompt tokens in a prefill pass. ``queue``: where requests
    of the other models wait (``Colocated``); None, if load reports are read: one queue per instance, as each
    instance reports its own queue. ``migration``: the migrations of the models in its rules; None: no request
    migrates. ``pipelines``: setups of the models that are cut into stages. ``reports_period_ns``: time
    between two load reports of an instance; 0: no policy reads reports. ``reports_at``: see ``LoadReports``.
    ``by_priority``: orders queues that instances share by priority. ``stock``: the engines choose their own
    passes, and the controller decides only what ``StockParts`` lists; None: the controller chooses the
    passes. ``bypass``: dispatches while the global scheduler is lost; None: it is never lost. ``converts``:
    lets decode instances compute prompts; None: they do not. ``places``: chooses where computed prompts
    decode, and gives instances the other role; None: the least demand, and none changes.
    """

    hand_overs: Mapping[str, HandOverRules] = field(default_factory=dict)
    max_num_batched_tokens: int = 0
    queue: Queue | None = None
    migration: MigrationParts | None = None
    reports_period_ns: int = 0
    reports_at: ReportsAt = "changes"
    pipelines: PipelineParts | None = None
    by_priority: bool = False
    stock: StockParts | None = None
    bypass: Dispatcher | None = None
    converts: ConvertParts | None = None
    places: SupportsDecodePlaces | None = None


def compose(
    replicas: Sequence[Replica],
    dispatcher: Dispatcher,
    batcher_for: Callable[[Replica], Batcher],
    *,
    admission: Admission,
    engine_options: EngineOptions | None = None,
    service_options: ServiceOptions | None = None,
    starts: Sequence[Load] = (),
    elastic: ElasticParts | None = None,
) -> Controller:
    """Return a fresh controller of these replicas, numbered from 0.

    ``starts``: see FixedReplicas. ``elastic``: adds and removes instances; None: the set of replicas never
    changes.
    """
    assert [replica.id for replica in replicas] == list(range(len(replicas)))
    assert not (starts and elastic), "an elastic system begins its loads itself"
    # Signals of scalers must not depend on how many steps one report covers.
    serving = service_options or ServiceOptions()
    alone = elastic is not None or serving.converts is not None
    options = replace(engine_options or EngineOptions(), prompts_alone=alone)
    pool, cold = EnginePool(batcher_for, options), replicas_of(starts)
    for replica in replicas:
        pool.add(replica, replica.id not in cold)
    engines, requests, transfer_ids, present = pool.engines, dict[int, Request](), TransferIds(), Present()
    records = _Records(
        engines=engines,
        requests=requests,
        transfer_ids=transfer_ids,
        present=present,
        dispatcher=_bypassed(dispatcher, serving.bypass, present),
        admission=admission,
    )
    services = _services(records, replicas, serving, elastic)
    assert not (serving.stock and starts), "stock engines have their parameters"
    for engine in engines.values():
        if engine.state is EngineState.IDLE:
            services[engine.replica.model].started(engine, [])
    aborts = Aborts(requests, _aborting_of(services), present)
    control: ReplicaControl
    pipelines = serving.pipelines
    if pipelines is not None and pipelines.scaling is not None:
        staged = _staged_of(services)
        control = StageControl(pipelines.scaling, engines, staged, pipelines.seats, pool.place)
    elif elastic is None:
        control = FixedReplicas(starts, engines, services, _rounds(services, serving, present))
    else:
        control = Elastic(
            elastic,
            placed=replicas,
            engines=engines,
            services=services,
            place=pool.place,
            present=present,
            end_requests=aborts.end,
            rounds=_rounds(services, serving, present),
            reports=_reports_of(services),
            evict={model: service.evict for model, service in services.items() if isinstance(service, Stock)},
        )
    return Controller(
        engines=engines,
        requests=requests,
        services=services,
        routes=Routes(transfer_ids, _streaming_of(services), aborts),
        elastic=control,
        present=present,
    )


def _staged_of(services: Mapping[str, Service]) -> dict[str, StagedService]:
    """Return the services of models that are cut into stages."""
    staged: dict[str, StagedService] = {}
    for model, service in services.items():
        if isinstance(service, Pipeline | LanguagePipeline):
            staged[model] = service
    return staged


def _aborting_of(services: Mapping[str, Service]) -> dict[str, Aborting]:
    """Return the services whose requests may lose their clients: those of instances with all layers."""
    aborting: dict[str, Aborting] = {}
    for model, service in services.items():
        if isinstance(service, Colocated | Migrating | Disaggregated | DecodeMigrating):
            aborting[model] = service
    return aborting


def _bypassed(dispatcher: Dispatcher, bypass: Dispatcher | None, present: Present) -> Dispatcher:
    """Return a dispatcher that can do without the global scheduler; the same if it is never lost."""
    return dispatcher if bypass is None else SchedulerBypass(dispatcher, bypass, present)


def _streaming_of(services: Mapping[str, Service]) -> dict[str, Streaming]:
    """Return the services whose engines choose their own passes."""
    streaming: dict[str, Streaming] = {}
    for model, service in services.items():
        if isinstance(service, Stock):
            streaming[model] = service
    return streaming


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """State that the services of all models share."""

    engines: Mapping[int, Engine]
    requests: Mapping[int, Request]
    transfer_ids: TransferIds
    present: Present
    dispatcher: Dispatcher
    admission: Admission


def _services(
    records: _Records, replicas: Sequence[Replica], options: ServiceOptions, elastic: ElasticParts | None
) -> dict[str, Service]:
    """Return the service of every model, including models without a replica."""
    prototypes = {} if elastic is None else dict(elastic.setup.prototypes)
    live = {} if elastic is None else live_setups(elastic)
    services: dict[str, Service] = {}
    queue = options.queue or ("per_instance" if elastic is not None and options.reports_period_ns else None)
    placed = {replica.model: replica for replica in replicas}
    for model, prototype in sorted((placed | prototypes).items()):
        if options.stock is not None:
            own = [replica for replica in replicas if replica.model == model]
            services[model] = Stock(
                model,
                replicas=own,
                dispatcher=records.dispatcher,
                admission=records.admission,
                parts=replace(options.stock, starts=prototypes.get(model, options.stock.starts)),
                present=records.present,
                transfer_ids=records.transfer_ids,
            )
        elif options.pipelines is not None and model in options.pipelines.setups:
            services[model] = _pipeline(model, records, replicas, options.pipelines)
        elif model in options.hand_overs:
            split = Disaggregated(
                prototype=prototype,
                engines=records.engines,
                requests=records.requests,
                admission=records.admission,
                rules=options.hand_overs[model],
                max_num_batched_tokens=options.max_num_batched_tokens,
                transfer_ids=records.transfer_ids,
                live=live.get(model),
                by_priority=options.by_priority,
                converts=options.converts,
                places=options.places,
            )
            services[model] = _migrating(split, records, options.migration)
        else:
            own = [replica for replica in replicas if replica.model == model]
            reports = _load_reports(records, [replica.id for replica in own], options)
            colocated = Colocated(
                fleet=Fleet(model, own, records.engines, reports),
                engines=records.engines,
                requests=records.requests,
                dispatcher=records.dispatcher,
                admission=records.admission,
                prototype=prototypes.get(model),
                max_num_batched_tokens=options.max_num_batched_tokens,
                transfer_ids=records.transfer_ids,
                live=live.get(model),
                queue=queue,
                max_model_len=prototype.max_model_len,
                by_priority=options.by_priority,
            )
            services[model] = _migrating(colocated, records, options.migration)
    return services


def _pipeline(
    model: str, records: _Records, replicas: Sequence[Replica], parts: PipelineParts
) -> Pipeline | LanguagePipeline:
    own, setup = [replica for replica in replicas if replica.model == model], parts.setups[model]
    if isinstance(setup, LanguageSetup):
        moves = None
        if setup.kv_layer_bytes:
            kv_bytes = KvBytes(setup.kv_layer_bytes * setup.parts[-1].last)
            moves = Moves(records.engines, Pieces(records.engines, kv_bytes), records.transfer_ids)
        return LanguagePipeline(
            setup,
            replicas=own,
            engines=records.engines,
            dispatcher=records.dispatcher,
            admission=records.admission,
            seats=parts.seats,
            present=records.present,
            moves=moves,
        )
    return Pipeline(
        setup,
        replicas=own,
        engines=records.engines,
        dispatcher=records.dispatcher,
        admission=records.admission,
        seats=parts.seats,
        present=records.present,
    )


def _migrating(inner: Colocated | Disaggregated, records: _Records, parts: MigrationParts | None) -> Service:
    """Wrap the service in a migrating service if running requests of its model migrate."""
    if parts is None or inner.model not in parts.rules:
        return inner
    if isinstance(inner, Disaggregated):
        return DecodeMigrating(
            inner,
            engines=records.engines,
            requests=records.requests,
            migrator=parts.migrator,
            rules=parts.rules[inner.model],
            transfer_ids=records.transfer_ids,
            present=records.present,
            period_ns=parts.period_ns,
        )
    return Migrating(
        inner,
        engines=records.engines,
        requests=records.requests,
        migrator=parts.migrator,
        rules=parts.rules[inner.model],
        transfer_ids=records.transfer_ids,
        present=records.present,
        period_ns=parts.period_ns,
        victims=parts.victims,
    )


def _load_reports(records: _Records, replicas: Sequence[int], options: ServiceOptions) -> LoadReports | None:
    """Return the load reports of these replicas; None if no policy reads reports."""
    if not options.reports_period_ns:
        return None
    return LoadReports(
        records.engines, replicas, options.reports_period_ns, records.present, options.reports_at
    )


def _rounds(services: Mapping[str, Service], options: ServiceOptions, present: Present) -> Rounds | None:
    """Return the periodic migration rounds; None if no request migrates."""
    stock, alone = options.stock, [service for service in services.values() if isinstance(service, Stock)]
    if stock is not None:
        if stock.migrator is None:
            return None
        return Rounds(alone, stock.period_ns, present, _every(stock.migrator))
    migrating = [service for service in services.values() if isinstance(service, Migrating | DecodeMigrating)]
    if options.migration is None:
        return None
    return Rounds(migrating, options.migration.period_ns, present, _every(options.migration.migrator))


def _every(migrator: Migrator) -> int:
    """Return n if the migrator pairs instances only in every n-th round; else 1."""
    every = getattr(migrator, "rounds", 1)
    return every if type(every) is int and every > 0 else 1


def _reports_of(services: Mapping[str, Service]) -> dict[str, LoadReports]:
    """Return the load reports by model, for the models whose reports are read."""
    reports = dict[str, LoadReports]()
    for model, service in services.items():
        inner = service.inner if isinstance(service, Migrating) else service
        if isinstance(inner, Colocated) and inner.fleet.reports is not None:
            reports[model] = inner.fleet.reports
    return reports
