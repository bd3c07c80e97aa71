"""Refuses values of a configuration that are out of range or contradict each other, one sentence each."""

from typing import Final

from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.compose.cache_pairs import check_cache_pair
from servetwin.config.compose.clusters import check_rates
from servetwin.config.compose.durations import check_durations
from servetwin.config.compose.stage_checks import check_stages
from servetwin.config.compose.start_checks import check_instance_starts
from servetwin.config.config import ON, RunConfig
from servetwin.config.data_parallel import check_data_parallel
from servetwin.config.engine_config import RECOMPUTE
from servetwin.config.faults_config import check_faults
from servetwin.config.http_config import HTTP, WORKERS, check_world, servers_of
from servetwin.config.instances_config import check_instances
from servetwin.config.key import check_declared
from servetwin.config.migration_config import check_migration
from servetwin.config.models_config import check_models, state_model_of
from servetwin.config.pipeline_config import check_pipeline
from servetwin.config.pipeline_parallel import check_pipeline_parallel
from servetwin.config.roles import check_roles
from servetwin.config.trace_config import check_clients_give_up, check_trace
from servetwin.config.workers_config import check_workers
from serving.vocabulary.errors import PlaceError, UserError

_FIRST: Final = ("workers", "engine.max_num_batched_tokens")  # other keys' values may follow theirs

# Refusals of settings that contradict ``system/migration``.


def check_migrations(config: RunConfig) -> None:
    """Refuse settings that contradict ``system/migration``."""
    system, name = config.system, config.system.migration.name
    check_migration(config.migration)
    if name == "none":
        return
    if system.instances.split and config.migration.victims == "neighbour":
        raise UserError(
            f"migration.victims=neighbour does not fit system={system.name}, whose decode instances keep "
            "room for what they write: write migration.victims=recompute or system=vllm"
        )
    _check_into_loading(config)
    if name == "defragment" and not system.instances.split:
        raise UserError(
            f"system/migration=defragment makes room on decode instances, and those of system={system.name} "
            "do both: write system.instances.split=true, system=distserve_half or system/migration=llumnix"
        )
    if system.live.name != "none":
        raise UserError(
            f"system/migration={name} does not fit system/live={system.live.name}, whose new instances take "
            "batches over while they load: write system/live=none or system/migration=none"
        )
    if config.engine.data_parallel_size > 1:
        raise UserError(
            f"system/migration={name} does not fit engine.data_parallel_size="
            f"{config.engine.data_parallel_size}, whose ranks step together: write "
            "engine.data_parallel_size=1 or system/migration=none"
        )
    if config.cluster.topology is None:
        raise UserError(
            f"system/migration={name} moves KV over links, and cluster={config.cluster.name} has none: write "
            "a cluster that has, such as cluster=llumnix or cluster=dgx_h100"
        )


def _check_into_loading(config: RunConfig) -> None:
    """Refuse into_loading without new instances that do both roles, and in real runs."""
    if not config.migration.into_loading:
        return
    system = config.system
    if system.instances.split or not system.elastic:
        raise UserError(
            "migration.into_loading=true is of instances that come and do both, and those of "
            f"system={system.name} do not: write system=llumnix_base_autoscaled or "
            "migration.into_loading=false"
        )
    if config.kind == "realexec":
        raise UserError(
            "migration.into_loading=true is simulated only, for a worker that loads takes no KV: write "
            "migration.into_loading=false"
        )


def check_batch_limits(config: RunConfig) -> None:
    """Refuse a scaler of batch sizes where instances do not choose whom they admit."""
    if config.system.scaler.name == "chiron" and config.system.instances.split:
        raise UserError(
            "system/scaler=chiron limits the batches of instances that do both, and those of "
            f"system={config.system.name} prefill or decode: write system.instances.split=false"
        )


# Refusals of dispatchers of prefill and decode instances where there are none, or where others use them.

_SPLIT_DISPATCH: Final = {"convertible": "tokenscale", "adaptive_pd": "llumnix_v2"}


def check_split_dispatch(config: RunConfig) -> None:
    """Refuse convertible decoders and adaptive roles where they do not fit."""
    system, name = config.system, config.system.dispatch.name
    if name not in _SPLIT_DISPATCH:
        return
    other = "system/dispatch=least_outstanding"
    if not system.instances.split:
        raise UserError(
            f"system/dispatch={name} is of separate prefill and decode instances, and those of "
            f"system={system.name} do both: write system={_SPLIT_DISPATCH[name]} or {other}"
        )
    if system.live.name != "none":
        raise UserError(
            f"system/dispatch={name} does not fit system/live={system.live.name}, whose decode instances "
            f"help those that load: write system/live=none or {other}"
        )
    if config.world == HTTP:
        raise UserError(
            f"system/dispatch={name} gives engines work of the other role, and servers behind HTTP have one: "
            f"write world=workers or {other}"
        )
    if name == "adaptive_pd" and system.elastic:
        raise UserError(
            f"system/dispatch=adaptive_pd changes roles itself, and system/scaler={system.scaler.name} "
            f"counts the instances of each: write system/scaler=none or {other}"
        )
    if name == "adaptive_pd" and len(set(config.model.tp_of_roles)) > 1:
        raise UserError(
            "system/dispatch=adaptive_pd lets any instance take either role, and model.prefill.tp differs "
            f"from model.decode.tp: write one model.tp or {other}"
        )


# Refusals of settings that servers behind HTTP cannot serve, one sentence each.

# Freeness reads reports of engines that run here; servers have no roles to change.
_NOT_OF_SERVERS: Final = ("freeness", "load_monitor_mutating")


def check_servers(config: RunConfig) -> None:
    """Refuse what no server supports. Limits of a particular server are known after probing it."""
    if config.world != HTTP:
        return
    system = config.system
    gpus, each = config.cluster.gpus, config.model.tp * config.model.pp
    servers = gpus // each if config.http.starts else len(servers_of(config.http))
    keeps = system.elastic and system.instances.keep_parameters_ms > 0
    full = system.instances.size == "full"
    split, moves = system.instances.split, system.migration.name != "none"
    if gpus != servers * each:
        raise UserError(
            f"http.servers has {servers} servers of {each} GPUs, and the cluster has {gpus}: write "
            f"workers={servers * each} or a cluster of so many"
        )
    for what, holds in (
        (f"system/scaler={system.scaler.name}", system.elastic and system.scaler.name in _NOT_OF_SERVERS),
        (f"system/provision={system.provision.name}", system.elastic and system.provision.name != "host"),
        ("system.instances.split=true with a scaler", system.elastic and split),
        ("system.instances.keep_parameters_ms", keeps),
        (f"system/stages={system.stages.name}", system.in_stages),
        (f"system.instances.size={system.instances.size}", not system.elastic and not full),
        (f"system/migration={system.migration.name} where instances prefill or decode", moves and split),
        (f"system/migration={system.migration.name} with a scaler", moves and system.elastic),
        (f"system/live={system.live.name}", system.live.name != "none"),
        (f"cluster.start={config.cluster.start}", config.cluster.start != "warm"),
        (f"models={config.models.name}", config.models.name != "one"),
    ):
        if holds:
            raise UserError(
                f"{what} asks for actions that servers behind HTTP do not carry out, which have one "
                "model each, stay, or sleep and wake where one does both (system=allcache "
                "system.instances.split=false): write world=workers, or a system without, such as system=vllm"
            )
    if moves and config.migration.mode != "recompute":
        raise UserError(
            f"migration.mode={config.migration.mode} copies KV, which servers behind HTTP do not: write "
            "migration.mode=recompute, which aborts a request here and resumes it elsewhere"
        )
    if config.series.period_s is not None:
        raise UserError(
            "series.period_s reads engines of ours, and servers behind HTTP have their own: leave it out"
        )


# Refusals of swapping (KV of preempted requests in host memory) that a run does not support.

_AGAIN = "write engine.preemption=recompute"


def check_swapping(config: RunConfig) -> None:
    """Refuse ``engine.preemption=swap`` if no engine supports it."""
    engine, system = config.engine, config.system
    if engine.preemption == RECOMPUTE:
        return
    for fits, what in (
        (config.kind != "realexec", "real workers, which have no host memory for KV"),
        (system.batcher.name == "prefill_first", f"system/batcher={system.batcher.name}: vLLM v1 has none"),
        (not engine.prefix_caching, "engine.prefix_caching=true, whose blocks stay on the GPU"),
        (not engine.asynchronous, "engine.asynchronous=true: vLLM v1 has none"),
        (config.model.pp == 1, f"model.pp={config.model.pp}, whose stages swap nothing"),
        (engine.data_parallel_size == 1, "engine.data_parallel_size above 1, whose ranks step together"),
        (not system.instances.split, f"system={system.name}, whose decode instances keep room for all"),
        (system.live.name == "none", f"system/live={system.live.name}, whose instances share passes"),
        (not system.in_stages, f"system={system.name}, whose instances have a stage each"),
    ):
        if not fits:
            raise UserError(f"engine.preemption=swap does not fit {what}: {_AGAIN}")
    if config.cluster.topology is None:
        raise UserError(
            f"engine.preemption=swap moves KV over PCIe, and cluster={config.cluster.name} has no links: "
            "write a cluster that has, such as cluster=llumnix, or engine.preemption=recompute"
        )


def check(config: RunConfig) -> None:
    """Refuse values that are out of range and settings that contradict each other, with a UserError."""
    check_declared(config, first=_FIRST)
    if "\0" in config.out or "\0" in (config.trace.path or "") or "\0" in (config.engine.profile or ""):
        raise UserError(
            "a path holds a null character: write out=, trace.path= and engine.profile= without it"
        )
    check_durations(config)
    _check_engine(config)
    _check_cluster(config)
    check_trace(config.trace)
    check_models(config.models, config.trace, config.kind)
    check_faults(config.faults, config.kind)
    check_workers(config.launcher, config.device, config.transport)
    check_world(config.world, config.http)
    check_clients_give_up(config)
    check_servers(config)
    _check_uncertainty(config)
    check_instances(config.system.instances, config.system.scaler.name, config.system.live.name)
    _check_elastic(config)
    check_migrations(config)
    check_split_dispatch(config)
    check_batch_limits(config)
    check_swapping(config)
    _check_prefix_caching(config)
    check_instance_starts(config)
    check_data_parallel(config)
    check_roles(config)
    check_pipeline_parallel(config)
    check_pipeline(config.pipeline)
    check_stages(config)
    if not config.out.strip():  # last, so that it hides no other mistake
        raise PlaceError("out is missing: write out=FOLDER, the folder the results go to")


def _check_uncertainty(config: RunConfig) -> None:
    if config.kind == "realexec" and config.uncertainty == ON:
        raise UserError(
            "uncertainty=on is for simulations, whose step times may be off: leave it out, for real workers "
            "take the time they take"
        )


def _check_engine(config: RunConfig) -> None:
    engine = config.engine
    chunked = config.system.batcher.name == "chunked_prefill"
    if chunked and engine.max_num_batched_tokens < engine.max_num_seqs:
        raise UserError(
            f"engine.max_num_batched_tokens={engine.max_num_batched_tokens} is below engine.max_num_seqs="
            f"{engine.max_num_seqs}, so a full batch could not decode in one step: write at least "
            f"engine.max_num_batched_tokens={engine.max_num_seqs} or fewer sequences"
        )
    least_tokens = engine.block_tokens * (1 + engine.reserved_blocks)
    if engine.kv_tokens is not None and engine.kv_tokens < least_tokens:
        raise UserError(
            f"engine.kv_tokens={engine.kv_tokens} leaves no block of {engine.block_tokens} tokens beside "
            f"engine.reserved_blocks={engine.reserved_blocks}: write at least engine.kv_tokens={least_tokens}"
        )
    if engine.step_time in ("whole_step", "op_table", "calibrated_roofline") and engine.profile is None:
        raise UserError(
            f"engine.step_time={engine.step_time} needs measured tables: write engine.profile=FILE, made "
            "with servetwin profile import"
        )
    if engine.profile is not None and engine.step_time == "roofline":
        raise UserError(
            "engine.profile is not used with engine.step_time=roofline, which is the datasheet's: "
            "write engine.step_time=calibrated_roofline or leave engine.profile out"
        )


def _check_prefix_caching(config: RunConfig) -> None:
    """Refuse prefix caching for models whose layers keep a state: it is not kept per block."""
    if not config.engine.prefix_caching:
        return
    name = state_model_of(config.model.name, config.models.shapes)
    if name is not None:
        raise UserError(
            f"engine.prefix_caching=true does not fit model={name}, whose linear-attention layers keep one "
            "state of a sequence and none per block: write engine.prefix_caching=false"
        )


def _check_cluster(config: RunConfig) -> None:
    cluster, tp = config.cluster, config.model.tp
    on_own_workers = config.kind == "realexec" and config.world == WORKERS
    if on_own_workers and cluster.name != "local":
        raise UserError(
            f"cluster={cluster.name} cannot be run by realexec, whose workers are processes of this machine: "
            "write cluster=local and workers=N"
        )
    if config.kind == "realexec" and tp > 1:
        raise UserError(
            f"model.tp={tp} cannot be run by realexec, whose instances are one worker each: write model.tp=1"
        )
    for key in ("asynchronous", "prefix_caching"):
        if on_own_workers and getattr(config.engine, key):
            raise UserError(
                f"engine.{key}=true cannot be run by realexec, whose workers do not have it: "
                f"write engine.{key}=false or engine=own_workers"
            )
    _check_start(config)
    _, _, count = cluster.name.rpartition("_x")
    if count.isdecimal() and cluster.gpus != int(count):
        family = cluster.name.removesuffix(count)
        raise UserError(
            f"cluster.gpus={cluster.gpus} contradicts cluster={cluster.name}: "
            f"write cluster={family}{cluster.gpus}"
        )
    if cluster.topology is not None and cluster.gpus != (there := load_cluster(cluster.topology).gpus):
        raise UserError(
            f"cluster.gpus={cluster.gpus} contradicts cluster={cluster.name}, which has {there}: write "
            f"another size as cluster={cluster.topology}_HxG, H hosts of G GPUs"
        )
    check_rates(cluster)
    pp = config.model.pp
    if config.models.name == "one" and pp > 1 and cluster.gpus % (tp * pp):
        raise UserError(
            f"model.pp={pp} with model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster="
            f"{cluster.name}: write a cluster whose GPUs are a multiple of {tp * pp}"
        )
    if config.models.name == "one" and cluster.gpus % tp and config.model.tp_of_roles == (tp, tp):
        raise UserError(
            f"model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster={cluster.name}: "
            f"write a model.tp that divides {cluster.gpus}, or a cluster whose GPUs are a multiple of {tp}"
        )


def _check_elastic(config: RunConfig) -> None:
    system, engine, name = config.system, config.engine, config.system.name
    parts = (("provision", system.provision), ("cache", system.cache), ("live", system.live))
    for group, policy in parts:
        loads = system.elastic or (system.scales_stages and group == "provision")
        if not loads and policy.name != "none":
            raise UserError(
                f"system/{group}={policy.name} does nothing with system/scaler=none, which loads nothing: "
                f"write system/{group}=none, or another option of system/scaler"
            )
    if not (system.elastic or system.instances.split):
        return
    if config.kind == "realexec" and system.provision.params.get("overlap"):
        raise UserError(
            f"system={name} runs a first batch while an instance loads, which real workers do not yet: write "
            "system.provision.overlap=false"
        )
    if config.cluster.topology is None:
        raise UserError(
            f"system={name} moves parameters or KV over links, and cluster={config.cluster.name} has none: "
            "write a cluster that has, such as cluster=blitz_a or cluster=dgx_h100"
        )
    if engine.asynchronous and system.instances.split:
        raise UserError(
            f"engine.asynchronous=true does not fit system={name}, whose engines hand requests over between "
            "two steps: write engine.asynchronous=false or engine=blitz_native"
        )
    if system.elastic and config.cluster.start != "warm":
        raise UserError(
            f"cluster.start={config.cluster.start} does not fit system={name}, which decides itself from "
            "where instances load: leave it out"
        )
    if engine.asynchronous and system.live.name != "none":
        raise UserError(
            f"engine.asynchronous=true does not fit system/live={system.live.name}, whose passes begin "
            "between two steps: write engine.asynchronous=false or engine=blitz_native"
        )
    if system.provision.params.get("overlap") and system.live.name not in ("none", "stop"):
        raise UserError(
            f"system.provision.overlap=true does not fit system/live={system.live.name}: an instance that "
            "runs its first batch while it loads shares no layers; write system.provision.overlap=false or "
            "system/live=none"
        )
    for group, policy in parts[:2]:
        if system.elastic and policy.name == "none":
            raise UserError(
                f"system/{group}=none does not fit system/scaler={system.scaler.name}, whose instances load "
                f"parameters: write another option of system/{group}"
            )
    if system.elastic:
        check_cache_pair(config)


def _check_start(config: RunConfig) -> None:
    cluster = config.cluster
    if cluster.start == "warm":
        return
    if config.kind == "realexec":
        raise UserError(
            f"cluster.start={cluster.start} cannot be run by realexec, whose workers make their parameters "
            "themselves: leave it out"
        )
    if cluster.topology is None:
        raise UserError(
            f"cluster.start={cluster.start} needs links to load over, and cluster={cluster.name} has none: "
            "write a cluster that has, such as cluster=blitz_a or cluster=dgx_h100"
        )
