"""Refusals of settings that do not fit a language model in stages, one sentence each."""

from servetwin.config.config import RunConfig
from servetwin.config.pipeline_config import PLAIN
from serving.vocabulary.errors import UserError

_OF_PASSES = ("queue", "batch", "batch_cost", "times", "times_cv", "cpu_cores", "cpu_share")


def check_language(config: RunConfig) -> None:
    """Refuse settings that decoding stages do not support, with a UserError."""
    model, system, engine = config.model, config.system, config.engine
    head = f"model={model.name} decodes in stages, and"
    if model.tp != 1:
        raise UserError(f"{head} model.tp={model.tp} is not built for that: write model.tp=1")
    if system.batcher.name != "chunked_prefill":
        raise UserError(
            f"{head} engine={engine.name} has system/batcher={system.batcher.name}: write engine=vllm_v1, "
            "whose prompts join decode steps"
        )
    for key in ("asynchronous", "prefix_caching"):
        if getattr(engine, key):
            raise UserError(
                f"{head} engine.{key}=true is not built for that: write engine.{key}=false or another system"
            )
    policy = system.instances.scheduling_policy
    if policy != "fcfs":
        raise UserError(
            f"{head} serves requests as they come: leave instances.scheduling_policy={policy} out"
        )
    if config.kind == "realexec" and config.pipeline.moves:
        raise UserError(
            f"{head} pipeline.moves=true is not built for real workers, whose requests stay on their path "
            "(docs/LANGUAGE_STAGES.md says what is missing): leave it out"
        )
    if config.pipeline.live and not config.pipeline.moves:
        raise UserError(
            f"{head} pipeline.live=true joins the KV of layers that two replicas ran: write "
            "pipeline.moves=true too"
        )
    for key in _OF_PASSES:
        value = getattr(config.pipeline, key)
        if value != getattr(PLAIN, key):
            raise UserError(f"{head} pipeline.{key}={value} is of models without KV: leave it out")
