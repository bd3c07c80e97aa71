"""Refuses values of a configuration that are out of range or contradict each other, one sentence each."""

from collections.abc import Iterator
from typing import Any

from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.compose.cache_pairs import check_cache_pair
from servetwin.config.compose.clusters import check_rates
from servetwin.config.compose.durations import check_durations
from servetwin.config.compose.http_checks import check_servers
from servetwin.config.compose.migration_checks import check_migrations
from servetwin.config.compose.stage_checks import check_stages
from servetwin.config.compose.start_checks import check_instance_starts
from servetwin.config.compose.swap_checks import check_swapping
from servetwin.config.config import (
    ANY_DRIVER,
    DTYPES,
    ESTIMATES,
    FLOAT32,
    STARTS,
    STEP_TIMES,
    RunConfig,
)
from servetwin.config.data_parallel import check_data_parallel
from servetwin.config.faults_config import check_faults
from servetwin.config.http_config import WORKERS, check_world
from servetwin.config.instances_config import RESERVES, check_instances
from servetwin.config.models_config import check_models
from servetwin.config.pipeline_config import check_pipeline
from servetwin.config.pipeline_parallel import check_pipeline_parallel
from servetwin.config.ranges import RANGES
from servetwin.config.trace_config import check_trace
from servetwin.config.uncertainty_config import ON, UNCERTAINTIES
from servetwin.config.vllm_defaults import USAGE_CONTEXTS
from servetwin.config.workers_config import TRANSPORTS, check_workers
from serving.vocabulary.errors import PlaceError, UserError


def check(config: RunConfig) -> None:
    """Refuse values that are out of range and settings that contradict each other, with a UserError."""
    for key, value in _numbers(config):
        if value not in RANGES[key]:
            raise UserError(f"{key}={value} is out of range: write a number {RANGES[key]}")
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
    if config.kind == "realexec" and config.driver != ANY_DRIVER:
        raise UserError(
            f"driver.carries_out={config.driver.carries_out} is for simulations: leave it out, for real "
            "workers carry out what they can"
        )
    if config.transport not in (None, *TRANSPORTS):
        raise UserError(f"transport={config.transport} is unknown: write one of {', '.join(TRANSPORTS)}")
    check_workers(config.launcher, config.ray, config.device, config.transport)
    check_world(config.world, config.http, config.metrics, config.log)
    check_servers(config)
    _check_worker_model(config)
    _check_uncertainty(config)
    check_instances(config.system.instances, config.system.scaler.name, config.system.live.name)
    _check_elastic(config)
    check_migrations(config)
    check_swapping(config)
    check_instance_starts(config)
    check_data_parallel(config)
    check_pipeline_parallel(config)
    check_pipeline(config.pipeline)
    check_stages(config)
    if not config.out.strip():  # last, so that it hides no other mistake
        raise PlaceError("out is missing: write out=FOLDER, the folder the results go to")


def _check_worker_model(config: RunConfig) -> None:
    model = config.model
    if model.dtype not in DTYPES:
        raise UserError(f"model.dtype={model.dtype} is unknown: write one of {', '.join(DTYPES)}")
    if config.kind == "simulate" and (model.checkpoint is not None or model.dtype != FLOAT32):
        raise UserError(
            "model.checkpoint and model.dtype are for realexec run: leave them out, for a simulation "
            "computes no tokens"
        )


def _check_uncertainty(config: RunConfig) -> None:
    if config.uncertainty not in UNCERTAINTIES:
        raise UserError(
            f"uncertainty={config.uncertainty} is unknown: write one of {', '.join(UNCERTAINTIES)}"
        )
    if config.kind == "realexec" and config.uncertainty == ON:
        raise UserError(
            "uncertainty=on is for simulations, whose step times may be off: leave it out, for real workers "
            "take the time they take"
        )


def _numbers(config: RunConfig) -> Iterator[tuple[str, float]]:
    for key in RANGES:
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        if value is not None:
            yield key, value


def _check_engine(config: RunConfig) -> None:
    engine = config.engine
    if engine.step_time not in STEP_TIMES:
        raise UserError(
            f"engine.step_time={engine.step_time} is unknown: write one of {', '.join(STEP_TIMES)}"
        )
    if engine.usage_context not in USAGE_CONTEXTS:
        known = ", ".join(USAGE_CONTEXTS)
        raise UserError(f"engine.usage_context={engine.usage_context} is unknown: write one of {known}")
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
    if engine.profile_force and engine.profile is None:
        raise UserError("engine.profile_force=true has no profile to force: write engine.profile=FILE too")
    if engine.profile is not None and engine.step_time == "roofline":
        raise UserError(
            "engine.profile is not used with engine.step_time=roofline, which is the datasheet's: "
            "write engine.step_time=calibrated_roofline or leave engine.profile out"
        )


def _check_cluster(config: RunConfig) -> None:
    cluster, tp = config.cluster, config.model.tp
    own = config.kind == "realexec" and config.world == WORKERS
    if own and cluster.name != "local":
        raise UserError(
            f"cluster={cluster.name} cannot be run by realexec, whose workers are processes of this machine: "
            "write cluster=local and workers=N"
        )
    if config.kind == "realexec" and tp > 1:
        raise UserError(
            f"model.tp={tp} cannot be run by realexec, whose instances are one worker each: write model.tp=1"
        )
    for key in ("asynchronous", "prefix_caching"):
        if own and getattr(config.engine, key):
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
    if config.models.name == "one" and cluster.gpus % tp:
        raise UserError(
            f"model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster={cluster.name}: "
            f"write a model.tp that divides {cluster.gpus}, or a cluster whose GPUs are a multiple of {tp}"
        )


def _check_elastic(config: RunConfig) -> None:
    system, engine, name = config.system, config.engine, config.system.name
    if engine.reserve not in RESERVES:
        raise UserError(f"engine.reserve={engine.reserve} is unknown: write one of {', '.join(RESERVES)}")
    if config.estimates not in ESTIMATES:
        raise UserError(f"estimates={config.estimates} is unknown: write one of {', '.join(ESTIMATES)}")
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
    if cluster.start not in STARTS:
        raise UserError(f"cluster.start={cluster.start} is unknown: write one of {', '.join(STARTS)}")
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
