"""Builds a run's objects from its configuration: replicas, controller, estimates, arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, repeat
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, cast

import policies
from hwmodels.step_times.rows import FIXED_PER_S
from hwmodels.topology.cluster_file import load_cluster
from policies.batching import ChunkedPrefill
from policies.migration_victims import StopsAtReserve
from servetwin.assemble.data_plane import starts_of
from servetwin.assemble.elastic import elastic_of, hand_over_rules, with_roles
from servetwin.assemble.expected_outputs import expected_tokens
from servetwin.assemble.faults import bypass_of
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models, seats_of
from servetwin.assemble.language_stages import language_replicas
from servetwin.assemble.lengths import LengthLimits, max_model_len
from servetwin.assemble.load_reports import reports_at, reports_period_ns
from servetwin.assemble.migration import migration_of, reserve_blocks
from servetwin.assemble.pipeline_plans import stage_rows
from servetwin.assemble.shared_prefixes import shares_prefixes
from servetwin.assemble.stage_cut import decodes_in_stages, stage_count
from servetwin.assemble.stages import pipelines_of, stage_replicas
from servetwin.assemble.streams import seed_of
from servetwin.config.config import RunConfig
from servetwin.config.engine_config import RECOMPUTE
from servetwin.config.http_config import ELSEWHERE, HTTP, TOGETHER
from servetwin.config.pipeline_parallel import virtual_engines
from servetwin.config.policy.make import make_policy, policy_maker
from serving.composition import MigrationParts, ServiceOptions, compose
from serving.controller import Controller
from serving.engine.pool import EngineOptions
from serving.engine.progress import Order
from serving.protocols.batch import Batcher
from serving.protocols.splitting import CONVERT, PLACE, chunk_tokens
from serving.services.colocated.service import Queue
from serving.services.disaggregated.conversions import ConvertParts
from serving.services.stock.handover import HandOverParts
from serving.services.stock.service import StockParts
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates, ModelEstimates
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S
from traces.sharing import shared_prefixes
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

# Host memory for the KV of preempted requests: number of blocks, and a block's time over PCIe.

_GIB = 1 << 30


def with_swap_space(config: RunConfig, model: HostedModel, replica: Replica) -> Replica:
    """Add swap space: each GPU copies its part of a block over its own PCIe link, at the reached rate.

    The time to launch the copies, separate for each layer's keys and values, is not included.
    """
    if config.engine.preemption == RECOMPUTE:
        return replica
    assert config.cluster.topology is not None, "refused before"
    spec = load_cluster(config.cluster.topology)
    shape = model.shape
    block_bytes = replica.block_tokens * shape.kv_bytes_per_token * shape.kv_copies(model.tp) / model.tp
    blocks = int(config.engine.swap_space_gib * _GIB // block_bytes)
    if not blocks:
        raise UserError(
            f"engine.swap_space_gib={config.engine.swap_space_gib:g} holds no KV block of {block_bytes:g} "
            "bytes per GPU: write a larger one, or engine.preemption=recompute"
        )
    reached_bytes_per_s = spec.pcie.bytes_per_s * spec.classes["pcie"].efficiency
    block_ns = ceil(block_bytes / reached_bytes_per_s * NS_PER_S)
    return replace(replica, swap_blocks=blocks, swap_block_ns=block_ns)


# Builds the control plane's decisions for requests at stock engines from the configuration.

NS_PER_MS = 1_000_000


def stock_of(config: RunConfig, migration: MigrationParts | None) -> StockParts | None:
    """Return the parts for stock engines; None if the engines are this package's."""
    if config.world != HTTP:
        return None
    migrator = None if migration is None else migration.migrator
    period_ns = round(config.migration.period_ms * NS_PER_MS)
    http = config.http
    return StockParts(
        elsewhere=http.lost == ELSEWHERE,
        migrator=migrator,
        period_ns=period_ns,
        hand_over=_hand_over(config),
        elsewhere_after_grace=http.after_grace == ELSEWHERE,
    )


def _hand_over(config: RunConfig) -> HandOverParts | None:
    """Return the hand-over parts; None if every engine does both prefill and decode."""
    if not config.system.instances.split:
        return None
    (model,) = hosted_models(config)
    return HandOverParts(model.kv_bytes, config.http.hand_over == TOGETHER)


# Decode speed is estimated with contexts of this length, as many as fit in memory or the engine may run.
ESTIMATE_CONTEXT_TOKENS = 1024
_BLOCK_ROWS = 4096


def prototype_of(config: RunConfig, hosted: HostedModel, hardware: Hardware) -> Replica:
    """Return a whole-model replica of ``hosted`` with number -1 and without GPUs."""
    engine = config.engine
    replica = Replica(
        id=-1,
        model=hosted.name,
        layers=LayerRange(0, hardware.layers),
        gpus=(),
        kv_blocks=hardware.kv_blocks,
        block_tokens=engine.block_tokens,
        watermark_blocks=int(engine.watermark * hardware.kv_blocks),
        prefix_caching=engine.prefix_caching,
        max_model_len=max_model_len(config, hosted),
        kv_pools=virtual_engines(config),
        sequence_blocks=hardware.sequence_blocks,
    )
    if replica.room_tokens <= replica.sequence_tokens and replica.sequence_tokens:
        raise UserError(
            f"a KV pool of {replica.kv_blocks // replica.kv_pools} blocks less those of engine.watermark "
            f"holds no sequence of {hosted.name}, whose windows and states take {replica.sequence_blocks}: "
            "write engine.watermark=0, a larger model.tp or a GPU with more memory"
        )
    return with_swap_space(config, hosted, replica)


def replicas_of(
    config: RunConfig, hardware: Mapping[str, Hardware], start: Mapping[Role, int] | None = None
) -> list[Replica]:
    """Return the replicas that serve from the start, of whole models or of stages.

    ``start``: how many of each role, with GPUs in index order. None: as many as the cluster's GPUs hold, the
    models in turns (``hosted.seats_of``).
    """
    if config.system.in_stages:
        return language_replicas(config) if decodes_in_stages(config) else stage_replicas(config)
    prototypes = prototypes_of(config, hardware)
    if start is not None:

        def prototype(model: HostedModel, role: Role) -> Replica:
            own = replace(model, tp=model.tp_of(role))
            return prototype_of(config, own, hardware[model.name].of_role(role))

        return with_roles(hosted_models(config), start, prototype)
    return [
        replace(prototypes[model.name], id=id, gpus=gpus) for id, (model, gpus) in enumerate(seats_of(config))
    ]


def prototypes_of(config: RunConfig, hardware: Mapping[str, Hardware]) -> dict[str, Replica]:
    """Return the ``prototype_of`` every hosted model; of roles with unequal memory, that with less."""
    return {
        model.name: prototype_of(config, model, _least(hardware[model.name]))
        for model in hosted_models(config)
    }


def _least(hardware: Hardware) -> Hardware:
    both = hardware, hardware.of_role("decode")
    least = min(both, key=lambda one: one.kv_blocks)
    return replace(least, sequence_blocks=max([one.sequence_blocks for one in both]))


def controller_of(
    config: RunConfig,
    hardware: Mapping[str, Hardware],
    replicas: list[Replica],
    estimates: Estimates,
    *,
    named_requests: bytes | None = None,
    outgrows_expected: bool = False,
) -> Controller:
    """Return a fresh controller with the configured policies; the same object type drives both worlds.

    ``named_requests``: request id -> 1 if another request names its tokens, else 0. None if this is unknown,
    which costs run time. ``outgrows_expected``: whether an output may be longer than the expected length, for
    which memory is reserved.

    A policy whose constructor has a parameter ``random`` or ``estimates`` receives it: a random stream of its
    own, or what policies may assume about speed.
    """
    system, known = config.system, {"estimates": estimates}
    dispatcher = make_policy(
        "system/dispatch", system.dispatch, random=Random(seed_of(config.seed, "dispatch")), **known
    )
    admission = make_policy(
        "system/admission", system.admission, random=Random(seed_of(config.seed, "admission")), **known
    )

    batcher_for = _batchers_of(config, estimates)
    engine = config.engine
    elastic = None
    if system.elastic:
        elastic = elastic_of(config, prototypes_of(config, hardware), estimates)
    may_preempt = system.instances.split and (outgrows_expected or _may_preempt(config, hardware))
    coalesce = not engine.exact and not may_preempt
    queue = cast(Queue | None, system.instances.queue)
    order = cast(Order, system.instances.scheduling_policy)
    migration = migration_of(config, estimates, prototypes_of(config, hardware))
    migrator, scaler = migration and migration.migrator, elastic and elastic.policies.scaler
    reports_ns = reports_period_ns(config, dispatcher, migrator, scaler)
    return compose(
        replicas,
        dispatcher,
        batcher_for,
        admission=admission,
        engine_options=EngineOptions(
            coalesce=coalesce,
            asynchronous=engine.asynchronous,
            checks=not _is_ours(system.batcher.policy),
            lockstep=engine.data_parallel_size > 1,
            named_requests=named_requests,
            order=order,
            pipeline_stages=config.model.pp,
            max_num_batched_tokens=engine.max_num_batched_tokens,
        ),
        service_options=ServiceOptions(
            hand_overs=hand_over_rules(config),
            max_num_batched_tokens=engine.max_num_batched_tokens,
            queue=queue,
            migration=None if config.world == HTTP else migration,
            reports_period_ns=reports_ns,
            reports_at=reports_at(config, dispatcher),
            pipelines=pipelines_of(config, estimates, hardware),
            by_priority=order == "priority",
            stock=stock_of(config, migration),
            bypass=bypass_of(config),
            converts=_converts_of(config, dispatcher),
            places=dispatcher if system.instances.split and hasattr(dispatcher, PLACE.method) else None,
        ),
        starts=starts_of(config, replicas),
        elastic=elastic,
    )


def _batchers_of(config: RunConfig, estimates: Estimates) -> Callable[[Replica], Batcher]:
    """Return a function that makes the batcher of a replica."""
    make_batcher = policy_maker("system/batcher", config.system.batcher, estimates=estimates)

    def batcher_for(replica: Replica) -> Batcher:
        batcher: Batcher = make_batcher()
        if config.migration.victims == "neighbour":
            return StopsAtReserve(batcher, reserve_blocks(config, replica))
        return batcher

    return batcher_for


def _converts_of(config: RunConfig, dispatcher: Any) -> ConvertParts | None:
    """Return what lets decode instances compute prompts, in chunks; None if the dispatcher does not."""
    engine, split = config.engine, config.system.instances.split
    if not split or config.world == HTTP or not hasattr(dispatcher, CONVERT.method):
        return None

    def batcher_for(model: str) -> Batcher:
        chunk = min(chunk_tokens(dispatcher, model), engine.max_num_batched_tokens)
        # A step's tokens are those of its prompts and one of every request that decodes.
        return ChunkedPrefill(
            engine.max_num_seqs, max(chunk, engine.max_num_seqs), engine.reserve_full_prompt
        )

    return ConvertParts(dispatcher, batcher_for)


def _is_ours(policy: str) -> bool:
    """Return whether a policy belongs to this package, whose tests check its answers."""
    return policy.partition(".")[0] == policies.__name__


def _may_preempt(config: RunConfig, hardware: Mapping[str, Hardware]) -> bool:
    """Return whether decode instances may run out of memory, which must then be checked after every step.

    They may if less than requests may write is reserved, or without a spare block that each request wants.
    """
    if config.engine.reserve == "mean":
        return True
    spare = config.system.batcher.params.get("decode_spare_block")
    prototypes = prototypes_of(config, hardware).values()
    return bool(spare) and any(not prototype.watermark_blocks for prototype in prototypes)


def estimates_of(config: RunConfig, hardware: Mapping[str, Hardware]) -> Estimates:
    """Return the speeds of one replica of each model as policies see them, from its step-time model."""
    of_kind = {id(kind): _estimates(config, "", kind) for kind in hardware.values()}
    entries = tuple(replace(of_kind[id(kind)], model=model) for model, kind in hardware.items())
    return Estimates(entries, "; ".join(dict.fromkeys(kind.step.source for kind in hardware.values())))


def _estimates(config: RunConfig, model: str, hardware: Hardware) -> ModelEstimates:
    engine, decoding = config.engine, hardware.of_role("decode")
    rows, kv_tokens = decoding.rows, decoding.kv_blocks * engine.block_tokens
    own_tokens = decoding.sequence_blocks * engine.block_tokens
    context = min(ESTIMATE_CONTEXT_TOKENS, kv_tokens - own_tokens)
    sequences = max(1, min(engine.max_num_seqs, kv_tokens // (context + own_tokens)))
    # A table may end before the KV memory does: then use the largest state that the table covers.
    while sequences > 1 and sequences * context > rows.decode(sequences)[-1][0]:
        sequences -= 1
    batch = min(engine.max_num_batched_tokens, hardware.step.limits.prompt_tokens)
    if stage_count(config) > 1:
        return _estimates_in_stages(
            config=config, model=model, hardware=hardware, batch=batch, sequences=sequences, context=context
        )
    prefill = hardware.rows.mixed(0, 0, ((0, 0, batch),))
    decode = rows.decode_cost(sequences, sequences * context)
    ranks = engine.data_parallel_size  # all ranks of a group do the same
    prefill_s = (prefill + hardware.together([batch] * ranks)) / FIXED_PER_S
    decode_s = (decode + hardware.together([sequences] * ranks)) / FIXED_PER_S
    return ModelEstimates(
        model=model,
        prefill_tokens_per_s=batch / prefill_s,
        decode_step_s=decode_s,
        decode_sequences=sequences,
        decode_context_tokens=context,
        kv_tokens=kv_tokens,
        decode_first_s=(rows.decode_cost(1, 1) + hardware.together([1] * ranks)) / FIXED_PER_S,
    )


def _estimates_in_stages(
    *, config: RunConfig, model: str, hardware: Hardware, batch: int, sequences: int, context: int
) -> ModelEstimates:
    """Estimate from the slowest stage's time per micro-batch, or the time through all stages if longer."""
    rows, pp = stage_rows(config, hardware), stage_count(config)
    prefill_s = max(rows.mixed(0, 0, ((0, 0, batch),))) / FIXED_PER_S
    each = -(-sequences // pp)
    _, intercepts, slopes = rows.decode(each)[0]
    times = [intercept + slope * each * context for intercept, slope in zip(intercepts, slopes)]
    decode_s = max(pp * max(times), sum(times)) / FIXED_PER_S
    kv_tokens = hardware.kv_blocks * config.engine.block_tokens
    return ModelEstimates(
        model=model,
        prefill_tokens_per_s=batch / prefill_s,
        decode_step_s=decode_s,
        decode_sequences=sequences,
        decode_context_tokens=context,
        kv_tokens=kv_tokens,
    )


def arrivals_of(
    config: RunConfig, workload: Workload, limits: LengthLimits, arrival_ns: np.ndarray | None = None
) -> Iterator[tuple[Request, int]]:
    """Yield (request, true output tokens) of each row in turn, built a block of rows at a time.

    ``arrival_ns``: when each arrives; None: as in the workload. With engine.reserve=oracle the cap of a
    request is its true length, so every policy knows it. If prompts share prefixes and engines look for them,
    each request carries what it shares.
    """
    hosted, caps = hosted_models(config), limits.caps
    oracle, expected = config.engine.reserve == "oracle", expected_tokens(config, workload, limits)
    names, code = [model.name for model in hosted], codes_of(workload, hosted)
    shared = shared_prefixes(workload) if shares_prefixes(config, workload) else None
    times_ns = workload.arrival_ns if arrival_ns is None else arrival_ns
    for rows in workload.blocks(_BLOCK_ROWS):
        arrival = times_ns[rows].tolist()
        prompt = workload.prompt_tokens[rows].tolist()
        output = workload.output_tokens[rows].tolist()
        priority = workload.priority
        limit = [caps] * len(arrival) if isinstance(caps, int) else caps[rows].tolist()
        if oracle:
            limit = list(map(min, limit, output))
        reserved = [min(expected, most) for most in limit] if expected else repeat(0)
        urgent = [0] * len(arrival) if priority is None else priority[rows].tolist()
        models = [names[at] for at in code[rows].tolist()]
        ids = range(rows.start, rows.start + len(arrival))
        fields = [ids, arrival, prompt, limit, models, urgent, reserved]
        if shared is not None:
            fields.append(islice(shared, len(arrival)))
        yield from zip(map(Request, *fields), output, strict=True)
