"""What reads the configuration keys that only some runs read; keys name it where they are declared."""

from typing import Any, Final

from hwmodels.catalogue.stacks import is_stack
from servetwin.config.key import Reader

Config = Any  # a RunConfig, whose modules import this one: tests/servetwin/test_unread_keys.py calls all
_SCALING: Final = "write a system that scales, such as system=serverlessllm cluster=blitz_a"


def decodes(config: Config) -> bool:
    """Return whether the run has a model that decodes, or several models."""
    alone_in_stages: bool = config.system.in_stages and config.models.name == "one"
    return not (alone_in_stages and is_stack(config.model.name))


def _loads(config: Config) -> bool:
    """Return whether instances load parameters during the run."""
    scales: bool = config.system.elastic
    return scales or config.cluster.start != "warm"


def _moves_bytes(config: Config) -> bool:
    """Return whether anything may cross a link: parameters, KV, or activations."""
    system, model = config.system, config.model
    kv = system.instances.split or system.migration.name != "none" or config.engine.preemption == "swap"
    activations = system.in_stages or model.pp > 1 or model.tp > 1
    return (
        config.kind == "realexec" or _loads(config) or kv or activations or config.models.shapes is not None
    )


MODELS_THAT_DECODE: Final = Reader(
    decodes, "models that decode", "write one, such as model=llama2_13b pipeline.stages=4"
)
SCALER: Final = Reader(lambda config: config.system.elastic, "a scaler", _SCALING)
SCALER_OF_BOTH: Final = Reader(
    lambda config: config.system.elastic and not config.system.instances.split,
    "a scaler of instances that prefill and decode",
    "write system=llumnix_autoscaled cluster=llumnix, or system.instances.split=false with another one that "
    "scales",
)
SCALER_OF_ROLES: Final = Reader(
    lambda config: config.system.elastic and config.system.instances.split,
    "a scaler of instances that prefill or decode",
    "write system.instances.prefill and .decode for a fixed number of each, or a system that scales, such as "
    "system=blitzscale cluster=blitz_a",
)
COMPILING_INSTANCES: Final = Reader(
    lambda config: config.system.instances.start in ("cold", "hot"),
    "instances that compile",
    "write system.instances.start=cold too",
)
LOADING_INSTANCES: Final = Reader(
    lambda config: _loads(config) or config.system.scales_stages,
    "instances that load",
    f"write cluster.start=host, ssd or remote, or {_SCALING.removeprefix('write ')}",
)
DECODE_INSTANCES: Final = Reader(
    lambda config: config.system.instances.split or config.engine.reserve == "oracle",
    "decode instances",
    "write a system that has them, such as system=distserve_full cluster=blitz_a",
)
SIMULATION: Final = Reader(
    lambda config: config.kind == "simulate", "simulations", "write servetwin simulate"
)
REAL_WORKERS: Final = Reader(
    lambda config: config.kind == "realexec" and config.world == "workers",
    "real workers",
    "write realexec run with world=workers",
)
HTTP_SERVERS: Final = Reader(
    lambda config: config.world == "http", "servers behind HTTP", "write world=http too"
)
RAY: Final = Reader(
    lambda config: "ray" in (config.launcher, config.http.launcher),
    "launcher=ray and http.launcher=ray",
    "write one of them too",
)
CHUNKED_PREFILL: Final = Reader(
    lambda config: "reserve_full_prompt" in config.system.batcher.params,
    "the batcher chunked_prefill",
    "write engine=vllm_v1",
)
PREFILL_FIRST: Final = Reader(
    lambda config: "decode_spare_block" in config.system.batcher.params,
    "the batcher prefill_first",
    "write engine=vllm_v0",
)
SWAP: Final = Reader(
    lambda config: config.engine.preemption == "swap", "engine.preemption=swap", "write that too"
)
PROFILE: Final = Reader(
    lambda config: config.engine.profile is not None, "engine.profile", "write engine.profile=FILE too"
)
STEP_TIME_RANGE: Final = Reader(
    lambda config: config.uncertainty == "on",
    "the range of a simulation's step times",
    "write servetwin simulate or sweep with uncertainty=on",
)
LINKS: Final = Reader(
    _moves_bytes,
    "systems that move parameters, KV or activations",
    "write cluster.start=host, or a system such as system=distserve_full",
)
MIGRATION: Final = Reader(
    lambda config: config.system.migration.name != "none",
    "system/migration",
    "write system/migration=least_loaded, or system=llumnix",
)
MIGRATING_VICTIMS: Final = Reader(
    lambda config: config.migration.victims == "neighbour", "migration.victims=neighbour", "write that too"
)
STAGES: Final = Reader(lambda config: config.system.in_stages, "models in stages", "write system=pipeline")
SCALING_STAGES: Final = Reader(
    lambda config: config.system.scales_stages, "stages that scale", "write system=quart"
)
ONE_PASS_MODELS: Final = Reader(
    lambda config: not decodes(config) or config.models.name != "one",
    "models that answer in one pass",
    "write model=bert_21b",
)
PASSES_OF_BATCHES: Final = Reader(
    lambda config: config.pipeline.batch > 1, "batches", "write pipeline.batch=N too"
)
RECUT_BY_CV: Final = Reader(
    lambda config: config.pipeline.recut == "cv", "pipeline.recut=cv", "write that too"
)
STAGED_REPLICAS: Final = Reader(
    lambda config: config.model.pp > 1, "replicas in several stages", "write model.pp=N too"
)
PREFIX_CACHING: Final = Reader(
    lambda config: config.engine.prefix_caching,
    "engines with prefix caching",
    "write engine.prefix_caching=true too",
)
REPEATED_PREFIXES: Final = Reader(
    lambda config: config.trace.repeat > 1 and config.engine.prefix_caching,
    "engines with prefix caching that see a trace several times",
    "write trace.repeat=N and engine.prefix_caching=true too",
)
RESAMPLING: Final = Reader(
    lambda config: config.trace.resample is not None, "trace.resample", "write trace.resample=block too"
)
GIVING_UP: Final = Reader(
    lambda config: config.trace.client_timeout_s is not None,
    "clients that give up",
    "write trace.client_timeout_s=SECONDS too",
)
CLOSED_LOOP: Final = Reader(
    lambda config: config.trace.clients is not None,
    "clients in a closed loop",
    "write trace.clients=NUMBER too",
)
