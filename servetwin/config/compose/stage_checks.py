"""Which models, clusters and systems fit models in stages."""

from hwmodels.catalogue import load_llm
from hwmodels.catalogue.stacks import is_stack, stack_names
from servetwin.config.config import RunConfig
from servetwin.config.models_config import shapes_of
from servetwin.config.pipeline_config import PLAIN
from serving.vocabulary.errors import UserError

# Refusals of settings that do not fit a language model in stages, one sentence each.

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
            "(docs/explanation/LANGUAGE_STAGES.md says what is missing): leave it out"
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


def check_stages(config: RunConfig) -> None:
    """Refuse a model in stages if the system has none, and vice versa."""
    system, model = config.system, config.model
    names = [name for name, _ in shapes_of(config.models.shapes, model.name, model.tp)]
    if not system.in_stages:
        for name in names:
            if is_stack(name):
                raise UserError(
                    f"model={name} keeps no KV and answers in one pass over its stages, which system="
                    f"{system.name} does not have: write system=pipeline"
                )
        if config.pipeline != PLAIN:
            raise UserError(
                f"pipeline.KEY says nothing with system={system.name}, whose instances have a whole model: "
                "leave it out or write system=pipeline"
            )
        return
    decoding = [name for name in names if not is_stack(name)]
    if decoding and config.models.name != "one":
        raise UserError(
            f"model={decoding[0]} decodes in stages alone, and models={config.models.name} has several: "
            f"write models=one, or models of {', '.join(stack_names())}"
        )
    if decoding:
        check_language(config)
    if config.kind == "realexec" and not decoding:
        raise UserError(
            f"model={names[0]} answers in one pass and has no parameters that real workers could run: write "
            "a model that decodes, such as model=tiny_llama pipeline.stages=2"
        )
    if config.cluster.topology is None:
        raise UserError(
            f"system={system.name} sends activations over links, and cluster={config.cluster.name} has none: "
            "write a cluster that has, such as cluster=quart"
        )
    if config.pipeline.live and (config.pipeline.queue != "stage" or not system.scales_stages):
        raise UserError(
            "pipeline.live=true is of stages that scale by themselves and have a common queue: write "
            "system=quart and pipeline.queue=stage, or leave it out"
        )
    if config.pipeline.moves and not (decoding and system.scales_stages):
        raise UserError(
            "pipeline.moves=true is of KV in stages that scale by themselves: write a model that decodes and "
            "system=quart, or leave it out"
        )
    if config.pipeline.recut != "none":
        _, many = config.pipeline.few_and_many()
        if not (decoding and config.pipeline.moves):
            raise UserError(
                f"pipeline.recut={config.pipeline.recut} moves KV between stages of other layers: write a "
                "model that decodes, system=quart and pipeline.moves=true, or leave it out"
            )
        if many > load_llm(model.name).layers:
            raise UserError(
                f"pipeline.recut_stages={config.pipeline.recut_stages} is more than the "
                f"{load_llm(model.name).layers} layers of {model.name}: write fewer"
            )
    if config.cluster.start != "warm":
        raise UserError(
            f"cluster.start={config.cluster.start} does not fit system={system.name}, whose stages have "
            "their parameters at the start: leave it out"
        )
    for key in () if decoding else ("prefill_share", "peak_share"):
        if getattr(config.trace, key) is not None:
            raise UserError(
                f"trace.{key} is of prompt tokens, and system={system.name} serves requests of one length: "
                "write trace.utilization or trace.rate_per_s"
            )
    _check_groups(config)


def _check_groups(config: RunConfig) -> None:
    """Refuse policies for whole instances. (Provisioning is allowed: it plans loads of stages too.)"""
    system = config.system
    for group in ("scaler", "cache", "live", "migration"):
        name = getattr(system, group).name
        if name != "none":
            raise UserError(
                f"system/{group}={name} decides about whole instances, and system/stages="
                f"{system.stages.name} has stages: write system/{group}=none"
            )
    if system.instances.split:
        raise UserError(
            f"system.instances.split=true does not fit system/stages={system.stages.name}, whose models "
            "decode nothing: leave it out"
        )
