"""Settings that do not fit replicas cut into pipeline stages, one sentence each."""

from experiments.config.config import RunConfig
from serving.vocabulary.errors import UserError

_BATCHER = "chunked_prefill"


def check_pipeline_parallel(config: RunConfig) -> None:
    """Refuse what replicas of several stages are not built for, with a UserError."""
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
    if system.batcher.name != _BATCHER:
        raise UserError(
            f"{head} is built for engines that schedule as vLLM's v1 does, and engine={engine.name} has "
            f"system/batcher={system.batcher.name}: write engine=vllm_v1 or {alone}"
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
