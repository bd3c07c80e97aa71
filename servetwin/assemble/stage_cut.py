"""How a run's model is cut into stages."""

from typing import Final

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import PUBLISHED, is_stack, stack_of_shape
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.stage_cuts import CUTS, Cut, bytes_cut, even_cut, given_cut, time_cut
from hwmodels.step_times.stage_rows import SHARE_BITS, head_share
from servetwin.assemble.hosted import run_shape
from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError

# Stages in QUART's released code, for the families that it runs.
STAGES_OF_FAMILY: Final = {"opt": 8, "llama": 7}


def decodes_in_stages(config: RunConfig) -> bool:
    """Return whether the run's model decodes and its stages are separate replicas."""
    return config.system.in_stages and config.models.count is None and not is_stack(config.model.name)


def stage_count(config: RunConfig) -> int:
    """Return the stages of a replica of ``model.pp``, or of a language model; 1: replicas are whole."""
    return len(required_cut(config)) if decodes_in_stages(config) else config.model.pp


def required_cut(config: RunConfig) -> Cut:
    """Return the cut of a run whose model is in stages."""
    cut = cut_of(config, run_shape(config))
    assert cut is not None, "the replicas are whole"
    return cut


def cut_of(config: RunConfig, shape: LlmShape) -> Cut | None:
    """Return the stages of ``model.pp`` and ``model.pp_cut``, or of ``pipeline``; None: replicas are whole.

    Raises UserError.
    """
    if decodes_in_stages(config):
        return _cut_of_language(config, shape)
    return _cut_of_replica(config, shape)


def _cut_of_language(config: RunConfig, shape: LlmShape) -> Cut:
    """Return the cut of ``pipeline.cut``; ``published``: as QUART's code cuts the model or its family."""
    cut, stages = config.pipeline.cut, config.pipeline.stages
    if cut == PUBLISHED:
        stack = stack_of_shape(shape.name)
        if stack is not None and stages in (None, len(stack.cut)):
            return given_cut(shape.layers, stack.cut)
        stages = stages or STAGES_OF_FAMILY.get(shape.name.partition("_")[0])
    if stages is None:
        raise UserError(
            f"nobody published stages of model={shape.name}: write pipeline.stages=4, or another number"
        )
    if stages > shape.layers:
        raise UserError(
            f"pipeline.stages={stages} is more than the {shape.layers} layers of {shape.name}: write fewer"
        )
    if cut == "bytes":
        return bytes_cut(shape, stages)
    return _cut_by_time(config, shape, stages) if cut == "time" else even_cut(shape.layers, stages)


def _cut_by_time(config: RunConfig, shape: LlmShape, stages: int) -> Cut:
    share = head_share(load_gpu(config.cluster.gpu), shape).of(1, 1) / (1 << SHARE_BITS)
    return time_cut(shape.layers, shape.layers * share / (1.0 - share), stages)


def _cut_of_replica(config: RunConfig, shape: LlmShape) -> Cut | None:
    stages, name = config.model.pp, config.model.pp_cut
    if stages == 1:
        return None
    if stages > shape.layers:
        raise UserError(
            f"model.pp={stages} is more than the {shape.layers} layers of {shape.name}: write fewer"
        )
    if name == "layers":
        return even_cut(shape.layers, stages)
    if name == "bytes":
        return bytes_cut(shape, stages)
    if name == "time":
        return _cut_by_time(config, shape, stages)
    return _listed_cut(name, stages, shape)


def _listed_cut(name: str, stages: int, shape: LlmShape) -> Cut:
    words = name.split("+")
    if not all(word.isdecimal() for word in words):
        raise UserError(
            f"model.pp_cut={name} is unknown: write one of {', '.join(CUTS)}, or the layers of each stage, "
            f"such as model.pp_cut={'+'.join(str(len(part)) for part in even_cut(shape.layers, stages))}"
        )
    if len(words) != stages:
        raise UserError(f"model.pp_cut={name} has {len(words)} stages: write model.pp={len(words)}")
    return given_cut(shape.layers, [int(word) for word in words])
