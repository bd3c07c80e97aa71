"""The configuration of one run: typed, frozen, and checked for values that contradict each other."""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from experiments.ranges import RANGES
from experiments.trace_config import TraceConfig, check_trace
from hwmodels.topology.cluster_file import load_cluster
from serving.errors import UserError

Kind = Literal["simulate", "realexec"]

STARTS: Final = ("warm", "host", "ssd", "remote")
STEP_TIMES: Final = ("auto", "op_table", "linear", "calibrated_roofline", "roofline")


@dataclass(frozen=True, slots=True)
class OverheadConfig:
    """What the engine adds to the operations of a step, and who says so.

    ``step_s`` every step, ``per_layer_s`` for each layer (gaps between its kernels), ``per_sequence_s`` for
    each sequence; with ``cuda_graphs`` small batches are padded to the captured sizes.
    """

    step_s: float
    per_layer_s: float
    per_sequence_s: float
    cuda_graphs: bool
    source: str


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One serving engine: the software and version imitated, its scheduler and its memory.

    ``kv_tokens`` and ``reserve_activation_bytes`` None: derived from GPU memory; ``reserved_blocks`` of it
    are not usable; ``max_new_tokens`` caps requests whose trace gives no cap. ``profile`` is a file of
    operation tables (None: the catalogue's coefficients); ``profile_force`` uses it though it was changed or
    measured for something else. ``asynchronous``: a step is chosen while the one before it runs.
    ``loader`` and ``start_up``: entries of loaders.yaml, for replicas that do not start warm.
    """

    name: str
    software: str
    version: str
    batcher: str
    max_num_seqs: int
    max_num_batched_tokens: int
    reserve_full_prompt: bool
    asynchronous: bool
    prefix_caching: bool
    block_tokens: int
    watermark: float
    reserved_blocks: int
    kv_tokens: int | None
    gpu_memory_utilization: float
    reserve_activation_bytes: int | None
    max_new_tokens: int
    step_time: str
    profile: str | None
    profile_force: bool
    loader: str
    start_up: str
    overhead: OverheadConfig
    exact: bool


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """A policy class as ``module:Class`` and what its constructor is given."""

    name: str
    policy: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """A serving system: one policy for every decision."""

    name: str
    dispatch: PolicyConfig
    batcher: PolicyConfig
    admission: PolicyConfig


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model of the hardware catalogue, ``tp`` GPUs per replica."""

    name: str
    tp: int


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """``gpus`` GPUs of one type. ``topology``: the cluster file that has the links between them, if any.

    ``start``: ``warm`` (parameters are there), or where every replica loads them from first (``STARTS``).
    """

    name: str
    gpu: str
    gpus: int
    topology: str | None
    start: str


@dataclass(frozen=True, slots=True)
class SloConfig:
    """Latency objectives of one request, in milliseconds, and who set them."""

    name: str
    ttft_ms: float
    tpot_ms: float
    source: str


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything one run depends on. ``workers`` is None in a simulation."""

    kind: str
    engine: EngineConfig
    system: SystemConfig
    model: ModelConfig
    cluster: ClusterConfig
    trace: TraceConfig
    slo: SloConfig
    seed: int
    journal: bool
    out: str
    overwrite: bool
    workers: int | None


def check(config: RunConfig) -> None:
    """Refuse values out of range and settings that contradict each other, with a UserError."""
    for key, value in _numbers(config):
        if value not in RANGES[key]:
            raise UserError(f"{key}={value} is out of range: write a number {RANGES[key]}")
    if not config.out.strip():
        raise UserError("out is missing: write out=FOLDER, the folder the results go to")
    if "\0" in config.out or "\0" in (config.trace.path or "") or "\0" in (config.engine.profile or ""):
        raise UserError(
            "a path holds a null character: write out=, trace.path= and engine.profile= without it"
        )
    _check_engine(config)
    _check_cluster(config)
    check_trace(config.trace)


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
    if engine.step_time in ("op_table", "calibrated_roofline") and engine.profile is None:
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
    if config.kind == "realexec" and cluster.name != "local":
        raise UserError(
            f"cluster={cluster.name} cannot be run by realexec, whose workers are processes of this machine: "
            "write cluster=local and workers=N"
        )
    for key in ("asynchronous", "prefix_caching"):
        if config.kind == "realexec" and getattr(config.engine, key):
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
    if cluster.gpus % tp:
        raise UserError(
            f"model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster={cluster.name}: "
            f"write a model.tp that divides {cluster.gpus}, or a cluster whose GPUs are a multiple of {tp}"
        )


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


def make_policy(key: str, policy: PolicyConfig, **provided: object) -> Any:
    """An instance of the policy configured under ``key`` (such as ``system/dispatch``).

    ``provided`` are things only the builder has (a random stream): each is handed over if the constructor
    has a parameter of that name. Raises UserError when the class is missing or does not take the parameters.
    """
    module_name, _, class_name = policy.policy.partition(":")
    where = f"{key}={policy.name}"
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{where} names the class '{policy.policy}', which cannot be found ({error}): "
            "write policy: module:Class in its YAML file"
        ) from error
    accepted = inspect.signature(factory).parameters
    for name in policy.params:
        if name not in accepted:
            known = ", ".join(accepted) or "none"
            raise UserError(
                f"{where} gives the parameter '{name}', which {class_name} does not take: "
                f"write one of its parameters ({known})"
            )
    given = {**{name: value for name, value in provided.items() if name in accepted}, **policy.params}
    try:
        return factory(**given)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} was refused by {class_name}: {error}; write other parameters") from error
