"""From a configuration to a language model in stages: its cut, replicas with KV, times of its steps."""

from collections.abc import Mapping
from typing import Final

from experiments.build.hardware import Hardware, kv_memory
from experiments.build.hosted import hosted_models
from experiments.build.lengths import max_model_len
from experiments.build.pipeline_plans import hops_of, stage_rows
from experiments.build.stage_cut import decodes_in_stages, required_cut
from experiments.compose.clusters import spec_of_cluster
from experiments.config.config import RunConfig
from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.stage_rows import StageRows
from hwmodels.topology.topology import build
from serving.services.language_pipeline import LanguageSetup
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from simcore.pipeline.circuits import PathCosts

_TP: Final = 1


def language_setups(config: RunConfig) -> dict[str, LanguageSetup]:
    """By model; none where models keep no KV."""
    if not decodes_in_stages(config):
        return {}
    (model,), engine = hosted_models(config), config.engine
    parts = tuple([Part(model.name, one.start, one.stop) for one in required_cut(config)])
    seqs, tokens = engine.max_num_seqs, engine.max_num_batched_tokens
    return {model.name: LanguageSetup(parts, seqs, tokens, not engine.exact)}


def language_replicas(config: RunConfig) -> list[Replica]:
    """The replicas of the start in order of stages, each with a GPU and KV memory of its own.

    The first ones of all stages lie side by side, then the second ones. Raises UserError.
    """
    (model,), engine, cut = hosted_models(config), config.engine, required_cut(config)
    gpu, llm, counts = (
        load_gpu(config.cluster.gpu),
        load_llm(model.shape_name),
        config.pipeline.counts(len(cut)),
    )
    if sum(counts) > config.cluster.gpus:
        raise UserError(
            f"pipeline.replicas={config.pipeline.replicas} is {sum(counts)} replicas of {len(cut)} stages, "
            f"each with a GPU of its own, and cluster={config.cluster.name} has {config.cluster.gpus}: write "
            "fewer replicas or a larger cluster"
        )
    turns = [
        (turn, stage) for turn in range(max(counts)) for stage in range(len(cut)) if turn < counts[stage]
    ]
    gpu_of = {place: gpu for gpu, place in enumerate(turns)}
    found = list[Replica]()
    for stage, layers in enumerate(cut):
        blocks = kv_memory(engine, gpu, llm, _TP, (layers,)).blocks
        for turn in range(counts[stage]):
            found.append(
                Replica(
                    id=len(found),
                    model=model.name,
                    layers=LayerRange(layers.start, layers.stop),
                    gpus=(gpu_of[turn, stage],),
                    kv_blocks=blocks,
                    block_tokens=engine.block_tokens,
                    watermark_blocks=int(engine.watermark * blocks),
                    max_model_len=max_model_len(config, model),
                )
            )
    return found


def path_costs(config: RunConfig, hardware: Mapping[str, Hardware]) -> dict[str, PathCosts]:
    """By model: what its steps take on a path of GPUs, whose links lie between its stages."""
    if not decodes_in_stages(config):
        return {}
    assert config.cluster.topology is not None, "models in stages need links"
    (model,), topology = hosted_models(config), build(spec_of_cluster(config.cluster))
    known: dict[tuple[int, ...], StageRows] = {}

    def of(gpus: tuple[int, ...]) -> StageRows:
        if gpus not in known:
            known[gpus] = stage_rows(config, hardware[model.name], hops_of(config, gpus, topology))
        return known[gpus]

    return {model.name: PathCosts(of)}


def chains(config: RunConfig) -> int:
    """How often the scarcest stage is there."""
    return min(config.pipeline.counts(len(required_cut(config))))
