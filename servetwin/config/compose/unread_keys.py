"""Refuses keys that were given and that nothing in the run reads, with what would read them.

``READERS`` lists keys that only some systems, traces or engines read. A value of theirs in a saved
config.yaml is never refused: only what the user wrote for this command. Most values that contradict the
system are refused by ``checks`` already, whoever wrote them; here also the defaults are.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from hwmodels.catalogue.stacks import is_stack
from servetwin.config.config import EngineConfig, RunConfig
from servetwin.config.http_config import HTTP
from servetwin.config.overrides import Override, canonical, echo
from servetwin.config.swapping import RECOMPUTE
from servetwin.config.uncertainty_config import ON
from serving.vocabulary.errors import UserError
from traces.load import synthetic_parameters


@dataclass(frozen=True, slots=True)
class Reader:
    """``keys`` (one that ends in a dot: all that begin so) are read if ``reads``; ``instead``: what to write.

    ``of``: what reads them, to follow "it is read only by".
    """

    keys: tuple[str, ...]
    reads: Callable[[RunConfig], bool]
    of: str
    instead: str

    def has(self, key: str) -> bool:
        """Return whether the key is one of ``keys``."""
        return any(key.startswith(one) if one.endswith(".") else key == one for one in self.keys)


def _instances(*names: str) -> tuple[str, ...]:
    return tuple(f"system.instances.{name}" for name in names)


def _loads(config: RunConfig) -> bool:
    """Return whether instances load parameters during the run."""
    return config.system.elastic or config.cluster.start != "warm"


def _moves_bytes(config: RunConfig) -> bool:
    """Return whether anything may cross a link: parameters, KV, or activations."""
    system, model = config.system, config.model
    kv = system.instances.split or system.migration.name != "none" or config.engine.preemption != RECOMPUTE
    activations = system.in_stages or model.pp > 1 or model.tp > 1
    return (
        config.kind == "realexec" or _loads(config) or kv or activations or config.models.shapes is not None
    )


def _decodes(config: RunConfig) -> bool:
    """Return whether the run has a model that decodes, or several models."""
    return not config.system.in_stages or config.models.name != "one" or not is_stack(config.model.name)


def _on_workers(config: RunConfig) -> bool:
    return config.kind == "realexec" and config.world != HTTP


def _takes_arrivals(config: RunConfig) -> bool:
    """Return whether the trace's rate counts, or the trace cannot be drawn without one."""
    if config.models.name != "zipf" or (config.models.rate_per_s or config.trace.utilization) is None:
        return True
    rate = synthetic_parameters(config.trace.name).get("rate_per_s")
    return rate is not None and rate.default is inspect.Parameter.empty


# Fields of an engine that also models without KV read, or that change no result by design.
_ENGINE_OF_ALL: Final = frozenset(
    {"name", "loader", "start_up", "overhead", "exact", "gpu_memory_utilization", "reserve_activation_bytes"}
)
_ENGINE_OF_DECODING: Final = (
    *(f"engine.{one.name}" for one in fields(EngineConfig) if one.name not in _ENGINE_OF_ALL),
    "engine.overhead.",
)
_SCALING: Final = "write a system that scales, such as system=serverlessllm cluster=blitz_a"
READERS: Final = (
    Reader(
        (*_ENGINE_OF_DECODING, *_instances("size", "queue", "scheduling_policy"), "trace.lengths",
         "trace.tokens_scale"),
        _decodes,
        "models that decode",
        "write one, such as model=llama2_13b pipeline.stages=4",
    ),
    Reader(
        _instances("both_min", "both_max"),
        lambda config: config.system.elastic and not config.system.instances.split,
        "a scaler of instances that prefill and decode",
        "write system=llumnix_autoscaled cluster=llumnix, or system.instances.split=false with another one "
        "that scales",
    ),
    Reader(
        _instances("prefill_min", "prefill_max", "decode_min", "decode_max"),
        lambda config: config.system.elastic and config.system.instances.split,
        "a scaler of instances that prefill or decode",
        "write system.instances.prefill and .decode for a fixed number of each, or a system that scales, "
        "such as system=blitzscale cluster=blitz_a",
    ),
    Reader(
        _instances("monitor_period_ms", "keep_parameters_ms"),
        lambda config: config.system.elastic,
        "a scaler",
        _SCALING,
    ),
    Reader(
        ("estimates",), lambda config: config.system.elastic, "a scaler", _SCALING
    ),
    Reader(
        _instances("compile_cache"),
        lambda config: config.system.instances.start in ("cold", "hot"),
        "instances that compile",
        "write system.instances.start=cold too",
    ),
    Reader(
        ("model.dtype", "model.checkpoint", "transport", "launcher", "ray.", "device"),
        _on_workers,
        "real workers",
        "write realexec run with world=workers",
    ),
    Reader(
        ("http.",), lambda config: config.world == HTTP, "servers behind HTTP", "write world=http too"
    ),
    Reader(
        ("engine.reserve_full_prompt",),
        lambda config: "reserve_full_prompt" in config.system.batcher.params,
        "the batcher chunked_prefill",
        "write engine=vllm_v1",
    ),
    Reader(
        ("engine.decode_spare_block",),
        lambda config: "decode_spare_block" in config.system.batcher.params,
        "the batcher prefill_first",
        "write engine=vllm_v0",
    ),
    Reader(
        ("engine.reserve",),
        lambda config: config.system.instances.split or config.engine.reserve == "oracle",
        "decode instances",
        "write a system that has them, such as system=distserve_full cluster=blitz_a",
    ),
    Reader(
        ("engine.start_up", "engine.loader"),
        lambda config: _loads(config) or config.system.scales_stages,
        "instances that load",
        f"write cluster.start=host, ssd or remote, or {_SCALING.removeprefix('write ')}",
    ),
    Reader(
        ("engine.swap_space_gib",),
        lambda config: config.engine.preemption != RECOMPUTE,
        "engine.preemption=swap",
        "write that too",
    ),
    Reader(
        ("engine.profile_force",),
        lambda config: config.engine.profile is not None,
        "engine.profile",
        "write engine.profile=FILE too",
    ),
    Reader(
        ("engine.overhead.error_s",),
        lambda config: config.uncertainty == ON,
        "the range of a simulation's step times",
        "write servetwin simulate or sweep with uncertainty=on",
    ),
    Reader(
        ("cluster.pcie_gbps", "cluster.nvlink_gbps", "cluster.nic_gbps", "cluster.ssd_gbps",
         "cluster.remote_gbps"),
        _moves_bytes,
        "systems that move parameters, KV or activations",
        "write cluster.start=host, or a system such as system=distserve_full",
    ),
    Reader(
        ("migration.",),
        lambda config: config.system.migration.name != "none",
        "system/migration",
        "write system/migration=least_loaded, or system=llumnix",
    ),
    Reader(
        ("migration.reserve",),
        lambda config: config.migration.victims == "neighbour",
        "migration.victims=neighbour",
        "write that too",
    ),
    Reader(
        ("pipeline.",), lambda config: config.system.in_stages, "models in stages", "write system=pipeline"
    ),
    Reader(
        ("pipeline.period_s", "pipeline.window_s", "pipeline.min_replicas", "pipeline.max_replicas"),
        lambda config: config.system.scales_stages,
        "stages that scale",
        "write system=quart",
    ),
    Reader(
        ("pipeline.queue", "pipeline.batch", "pipeline.batch_cost", "pipeline.times", "pipeline.times_cv",
         "pipeline.cpu_cores", "pipeline.cpu_share"),
        lambda config: not _decodes(config) or config.models.name != "one",
        "models that answer in one pass",
        "write model=bert_21b",
    ),
    Reader(
        ("pipeline.batch_cost",),
        lambda config: config.pipeline.batch > 1,
        "batches",
        "write pipeline.batch=N too",
    ),
    Reader(
        ("pipeline.recut_stages",),
        lambda config: config.pipeline.recut == "cv",
        "pipeline.recut=cv",
        "write that too",
    ),
    Reader(
        ("model.pp_cut",),
        lambda config: config.model.pp > 1,
        "replicas in several stages",
        "write model.pp=N too",
    ),
    Reader(
        ("trace.identities",),
        lambda config: config.engine.prefix_caching,
        "engines with prefix caching",
        "write engine.prefix_caching=true too",
    ),
    Reader(
        ("trace.repeat_contents",),
        lambda config: config.trace.repeat > 1 and config.engine.prefix_caching,
        "engines with prefix caching that see a trace several times",
        "write trace.repeat=N and engine.prefix_caching=true too",
    ),
    Reader(
        ("trace.block_requests",),
        lambda config: config.trace.resample is not None,
        "trace.resample",
        "write trace.resample=block too",
    ),
    Reader(
        ("trace.client_think_s",),
        lambda config: config.trace.clients is not None,
        "clients in a closed loop",
        "write trace.clients=NUMBER too",
    ),
    Reader(
        ("trace.rate_per_s",),
        _takes_arrivals,
        "runs whose arrivals are the trace's",
        "leave out models.rate_per_s",
    ),
)  # fmt: skip


def refuse_unread(words: Iterable[Override], config: RunConfig) -> None:
    """Raise UserError for the first word that the run does not read."""
    for word in words:
        if why := why_unread(canonical(word.key), config):
            raise UserError(f"{word} would change nothing: {why}")


def refuse_if_none_reads(
    keys: Iterable[str], configs: Iterable[RunConfig | None], runs: str, readers: Sequence[Reader] = READERS
) -> None:
    """Raise UserError for a key that none of several runs reads; composes no more of them than needed.

    ``configs``: None for a run that is refused or not composed, which may read every key. ``runs``: what
    they are, such as "this sweep".
    """
    whys = dict.fromkeys((key for key in keys if any(one.has(key) for one in readers)), "")
    for config in configs if whys else ():
        whys = (
            {} if config is None else {key: why for key in whys if (why := why_unread(key, config, readers))}
        )
        if not whys:
            return
    for key, why in whys.items():
        if why:
            raise UserError(f"{key} would change nothing in {runs}: {why}")


def why_unread(key: str, config: RunConfig, readers: Sequence[Reader] = READERS) -> str:
    """Return what reads the key and what to write, if this run does not read it; "" if it does."""
    for reader in readers:
        if reader.has(key) and not reader.reads(config):
            system = f" (this is system={config.system.name})" if key.startswith("system.") else ""
            return f"it is read only by {reader.of}{system}; leave it out, or {reader.instead}"
    return ""


def refuse_others(words: Iterable[str], read: Sequence[str], command: str) -> None:
    """Raise UserError for a word whose key or group ``command`` does not read.

    ``read``: the keys that it reads; one that ends in a dot stands for all that begin so.
    """
    for word in words:
        key = word.partition("=")[0]
        if not any(key.startswith(one) if one.endswith(".") else key == one for one in read):
            raise UserError(
                f"{echo(word)} would change nothing: {command} does not read {echo(key)}; leave it out "
                f"(it reads {', '.join(read)})"
            )
