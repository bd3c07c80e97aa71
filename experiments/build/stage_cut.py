"""Into which layers a run's replicas are cut."""

from experiments.config.config import RunConfig
from hwmodels.catalogue import load_gpu
from hwmodels.llm_shape import LlmShape
from hwmodels.stage_cuts import CUTS, Cut, bytes_cut, even_cut, given_cut, time_cut
from hwmodels.stage_rows import SHARE_BITS, head_share
from serving.vocabulary.errors import UserError


def cut_of(config: RunConfig, shape: LlmShape) -> Cut | None:
    """The stages of ``model.pp`` and ``model.pp_cut``; None where replicas are whole. Raises UserError."""
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
        share = head_share(load_gpu(config.cluster.gpu), shape).of(1, 1) / (1 << SHARE_BITS)
        return time_cut(shape.layers, shape.layers * share / (1.0 - share), stages)
    return _given(name, stages, shape)


def _given(name: str, stages: int, shape: LlmShape) -> Cut:
    words = name.split("+")
    if not all(word.isdecimal() for word in words):
        raise UserError(
            f"model.pp_cut={name} is unknown: write one of {', '.join(CUTS)}, or the layers of each stage, "
            f"such as model.pp_cut={'+'.join(str(len(part)) for part in even_cut(shape.layers, stages))}"
        )
    if len(words) != stages:
        raise UserError(f"model.pp_cut={name} has {len(words)} stages: write model.pp={len(words)}")
    return given_cut(shape.layers, [int(word) for word in words])
