"""Refusals of settings that do not fit pipeline stages, one sentence each; scheduling of their steps."""

from typing import Final

from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError

# Batchers of engines with a queue of batches (v1), and of those with a virtual engine for each stage (v0).
_QUEUE_OF_BATCHES: Final = "chunked_prefill"
_VIRTUAL_ENGINES: Final = "prefill_first"
_AS_VLLM_0_6: Final = "pipeline stages: virtual engines as vLLM 0.6 has them; {}"
_STAND_INS: Final = {
    "vllm_0_1_7": "vLLM 0.1.7 itself refuses pipeline_parallel_size above 1",
    "vllm_0_2_0": "vLLM 0.2.0 itself refuses pipeline_parallel_size above 1",
    "distserve": "DistServe's own engine parts its decode batches, with blocks in common",
    "blitz_native": "BlitzScale's own engine has tensor parallelism alone",
}


def virtual_engines(config: RunConfig) -> int:
    """Return the virtual engines of each replica; 1: it has one scheduler."""
    return config.model.pp if config.system.batcher.name == _VIRTUAL_ENGINES else 1


def stand_in(config: RunConfig) -> list[str]:
    """Return a label if the imitated engine forms its micro-batches differently."""
    told = _STAND_INS.get(config.engine.name)
    return [] if told is None else [_AS_VLLM_0_6.format(told)]


def check_pipeline_parallel(config: RunConfig) -> None:
    """Refuse settings that replicas of several stages do not support, with a UserError."""
    model, system, engine, cluster = config.model, config.system, config.engine, config.cluster
    head, alone = f"model.pp={model.pp}", "model.pp=1"
    if model.pp == 1:
        if model.pp_cut != "layers":
            raise UserError(f"model.pp_cut={model.pp_cut} cuts nothing with {head}: write model.pp=N too")
        return
    if config.kind == "realexec":
        raise UserError(f"{head} cannot be run by realexec, whose workers hold whole models: write {alone}")
    if system.in_stages:
        raise UserError(
            f"{head} does not fit system={system.name}, whose stages are replicas of their own: write "
            f"pipeline.cut, or system=vllm"
        )
    if system.elastic or system.instances.split or system.migration.name != "none":
        raise UserError(
            f"{head} does not fit system={system.name}, which moves parameters or KV of whole instances: "
            f"write system=vllm without system/migration, or {alone}"
        )
    if system.batcher.name not in (_QUEUE_OF_BATCHES, _VIRTUAL_ENGINES):
        raise UserError(
            f"{head} is built for engines that schedule as vLLM does, and engine={engine.name} has "
            f"system/batcher={system.batcher.name}: write system/batcher={_QUEUE_OF_BATCHES}, "
            f"system/batcher={_VIRTUAL_ENGINES} or {alone}"
        )
    policy = system.instances.scheduling_policy
    if policy != "fcfs":
        raise UserError(
            f"{head} does not fit system.instances.scheduling_policy={policy}, for its queue is served as "
            f"requests come: leave it out or write {alone}"
        )
    for key in ("asynchronous", "prefix_caching"):
        if getattr(engine, key):
            raise UserError(
                f"engine.{key}=true does not fit {head}, whose micro-batches are chosen when one has ended "
                f"and share no blocks: write engine.{key}=false or {alone}"
            )
    if engine.data_parallel_size > 1:
        raise UserError(
            f"{head} with engine.data_parallel_size={engine.data_parallel_size} is not built: "
            f"write {alone} or engine.data_parallel_size=1"
        )
    if cluster.start != "warm":
        raise UserError(
            f"{head} does not fit cluster.start={cluster.start}, as loads of stages are not built for static "
            f"systems: leave cluster.start out or write {alone}"
        )
    if config.models.name != "one":
        raise UserError(f"{head} does not fit models={config.models.name}: write models=one or {alone}")
