"""The configuration of one run: typed, frozen, and checked for values that contradict each other."""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from serving.errors import UserError

Kind = Literal["simulate", "realexec"]

MAX_GPUS: Final = 8192
STEP_TIMES: Final = ("auto", "linear", "roofline")
# Beyond ten times what the cluster is estimated to carry the queue only grows; a larger number is a slip.
MAX_UTILIZATION: Final = 10.0
# A step takes milliseconds, and nobody waits a day for a token: larger numbers are in another unit.
MAX_OVERHEAD_S: Final = 10.0
MAX_OBJECTIVE_MS: Final = 86_400_000.0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One serving engine's scheduler settings.

    ``kv_tokens`` and ``reserve_activation_bytes`` None: derived from GPU memory; ``max_new_tokens`` caps
    requests whose trace gives no cap; ``overhead_s`` seconds added to every step.
    """

    name: str
    batcher: str
    max_num_seqs: int
    max_num_batched_tokens: int
    block_tokens: int
    watermark: float
    kv_tokens: int | None
    gpu_memory_utilization: float
    max_new_tokens: int
    step_time: str
    overhead_s: float
    exact: bool
    reserve_activation_bytes: int | None


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
    """``gpus`` GPUs of one type."""

    name: str
    gpu: str
    gpus: int


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """A workload: recorded (read from ``path`` or the data folder) or synthetic (``requests`` drawn).

    ``limit`` keeps the first requests; ``utilization`` rescales time to this share of what the cluster is
    estimated to carry; ``rate_per_s`` sets the mean arrival rate of a synthetic trace instead;
    ``tokens_scale`` multiplies prompt and output lengths.
    """

    name: str
    synthetic: bool
    path: str | None
    limit: int | None
    utilization: float | None
    tokens_scale: float
    requests: int | None
    rate_per_s: float | None


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


@dataclass(frozen=True, slots=True)
class Range:
    """The values a number may take; None means unbounded. ``open_low``/``open_high`` exclude the bound."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.open_high)

    def __str__(self) -> str:
        """Words that follow "write a number ..."."""
        if self.low is not None and self.high is not None:
            low = f"above {self.low:g}" if self.open_low else f"from {self.low:g}"
            return f"{low} {'and below' if self.open_high else 'up to'} {self.high:g}"
        return f"above {self.low:g}" if self.open_low else f"of at least {self.low:g}"


_COUNT: Final = Range(low=1)
_POSITIVE: Final = Range(low=0, open_low=True)
_OBJECTIVE: Final = Range(low=0, high=MAX_OBJECTIVE_MS, open_low=True)

RANGES: Final[dict[str, Range]] = {
    "workers": Range(low=1, high=MAX_GPUS),  # before cluster.gpus, which follows it
    "engine.max_num_seqs": _COUNT,
    "engine.max_num_batched_tokens": _COUNT,
    "engine.block_tokens": _COUNT,
    "engine.watermark": Range(low=0, high=1, open_high=True),
    "engine.kv_tokens": _COUNT,
    "engine.gpu_memory_utilization": Range(low=0, high=1, open_low=True),
    "engine.max_new_tokens": _COUNT,
    "engine.overhead_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.reserve_activation_bytes": Range(low=0),
    "model.tp": _COUNT,
    "cluster.gpus": Range(low=1, high=MAX_GPUS),
    "trace.limit": _COUNT,
    "trace.utilization": Range(low=0, high=MAX_UTILIZATION, open_low=True),
    "trace.tokens_scale": _POSITIVE,
    "trace.requests": _COUNT,
    "trace.rate_per_s": _POSITIVE,
    "slo.ttft_ms": _OBJECTIVE,
    "slo.tpot_ms": _OBJECTIVE,
    "seed": Range(low=0),
}


def check(config: RunConfig) -> None:
    """Refuse values out of range and settings that contradict each other, with a UserError."""
    for key, value in _numbers(config):
        if value not in RANGES[key]:
            raise UserError(f"{key}={value} is out of range: write a number {RANGES[key]}")
    if not config.out.strip():
        raise UserError("out is missing: write out=FOLDER, the folder the results go to")
    if "\0" in config.out or "\0" in (config.trace.path or ""):
        raise UserError("a path holds a null character: write out= and trace.path= without it")
    _check_engine(config)
    _check_cluster(config)
    _check_trace(config.trace)


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
    if engine.kv_tokens is not None and engine.kv_tokens < engine.block_tokens:
        raise UserError(
            f"engine.kv_tokens={engine.kv_tokens} is less than one block of {engine.block_tokens} tokens: "
            f"write at least engine.kv_tokens={engine.block_tokens}"
        )


def _check_cluster(config: RunConfig) -> None:
    cluster, tp = config.cluster, config.model.tp
    if config.kind == "realexec" and cluster.name != "local":
        raise UserError(
            f"cluster={cluster.name} cannot be run by realexec, whose workers are processes of this machine: "
            "write cluster=local and workers=N"
        )
    _, _, count = cluster.name.rpartition("_x")
    if count.isdecimal() and cluster.gpus != int(count):
        family = cluster.name.removesuffix(count)
        raise UserError(
            f"cluster.gpus={cluster.gpus} contradicts cluster={cluster.name}: "
            f"write cluster={family}{cluster.gpus}"
        )
    if cluster.gpus % tp:
        raise UserError(
            f"model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster={cluster.name}: "
            f"write a model.tp that divides {cluster.gpus}, or a cluster whose GPUs are a multiple of {tp}"
        )


def _check_trace(trace: TraceConfig) -> None:
    if trace.synthetic:
        if trace.path is not None:
            raise UserError(
                f"trace.path does not fit trace={trace.name}, which is drawn and not read: leave it out, "
                "or choose a recorded trace such as trace=azure_conv"
            )
        if trace.rate_per_s is not None and trace.utilization is not None:
            raise UserError(
                "trace.rate_per_s and trace.utilization both set the arrival rate: write only one of them"
            )
        return
    if trace.requests is not None:
        raise UserError(
            f"trace.requests is for synthetic traces and trace={trace.name} is recorded: "
            f"write trace.limit={trace.requests} to keep its first requests"
        )
    if trace.rate_per_s is not None:
        raise UserError(
            f"trace.rate_per_s is for synthetic traces and trace={trace.name} is recorded: write "
            f"trace.utilization=SHARE to rescale its arrivals, or trace={trace.name}_like if there is one"
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
