"""Builds a language model in stages from the configuration: cut, replicas with KV, step times."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.models.load_units import model_units
from hwmodels.step_times.rows import FIXED_PER_S
from hwmodels.step_times.stage_rows import StageRows
from hwmodels.topology.topology import build
from servetwin.assemble.hardware import Hardware, kv_memory
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.lengths import max_model_len
from servetwin.assemble.pipeline_plans import hops_of, stage_rows
from servetwin.assemble.stage_cut import decodes_in_stages, required_cut
from servetwin.config.compose.clusters import spec_of_cluster
from servetwin.config.config import RunConfig
from serving.services.language.setup import LanguageSetup
from serving.services.language.stage_work import PROMPT_TOKENS, StageWork
from serving.vocabulary.actions import Span
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from simcore.pipeline.circuits import PathCosts

_TP: Final = 1


def language_parts(config: RunConfig) -> tuple[Part, ...]:
    """Return the stages of the model in order."""
    (model,) = hosted_models(config)
    return tuple([Part(model.name, span.start, span.stop) for span in required_cut(config)])


def language_setups(config: RunConfig, hardware: Mapping[str, Hardware]) -> dict[str, LanguageSetup]:
    """Return the set-up of each model; empty if models keep no KV."""
    if not decodes_in_stages(config):
        return {}
    (model,), engine = hosted_models(config), config.engine
    parts, seqs, tokens = language_parts(config), engine.max_num_seqs, engine.max_num_batched_tokens
    setup = LanguageSetup(
        parts=parts, max_num_seqs=seqs, max_num_batched_tokens=tokens, coalesce=not engine.exact
    )
    if config.system.scales_stages:
        prototypes = _prototypes(config)
        work = _work(config, hardware[model.name], prototypes)
        setup = replace(setup, prototypes=prototypes, work=work, live=config.pipeline.live)
        if config.pipeline.recut != "none":
            setup = replace(setup, most_layers=_most_layers(prototypes, parts[-1].last))
    if config.pipeline.moves:
        shape = model.shape
        if shape.kv_bytes_per_sequence:
            raise UserError(
                f"model={model.name} has layers with windows or states, whose KV does not move between "
                "stages: leave pipeline.moves out"
            )
        setup = replace(setup, kv_layer_bytes=shape.kv_bytes_per_token // shape.layers)
    return {model.name: setup}


def language_sizes(config: RunConfig) -> dict[Part, int]:
    """Return the parameter bytes of every stage; of every possible stage if the model may be recut."""
    (model,) = hosted_models(config)
    parts = language_parts(config) if config.pipeline.recut == "none" else tuple(_prototypes(config))
    return {
        part: sum([unit.size_bytes for unit in model_units(model.shape, layers=range(*part.layers))])
        for part in parts
    }


def _work(config: RunConfig, hardware: Hardware, parts: Iterable[Part]) -> dict[Part, StageWork]:
    """Return the work of each part. One batch per stage decodes in turn; together they fill the KV memory.

    The number of batches is that of the run's own cut, also for parts of other cuts.
    """
    engine, stages, layers = config.engine, len(required_cut(config)), required_cut(config)[-1].stop
    rows = stage_rows(config, hardware, cut=tuple([range(layer, layer + 1) for layer in range(layers)]))
    batch = min(engine.max_num_batched_tokens, hardware.step.limits.prompt_tokens)
    own_tokens = hardware.sequence_blocks * engine.block_tokens
    fits = hardware.kv_blocks * engine.block_tokens // (PROMPT_TOKENS + own_tokens)
    sequences = min(engine.max_num_seqs, max(1, fits // stages))
    prompts, context = rows.mixed(0, 0, ((0, 0, batch),)), sequences * PROMPT_TOKENS
    while sequences > 1 and context > rows.decode(sequences)[-1][0]:
        sequences, context = sequences - 1, context - PROMPT_TOKENS
    pieces = rows.decode(sequences)
    _, intercepts, slopes = next((piece for piece in pieces if context <= piece[0]), pieces[-1])
    return {
        part: StageWork(
            sum(prompts[part.first : part.last]) / batch / FIXED_PER_S,
            (sum(intercepts[part.first : part.last]) + sum(slopes[part.first : part.last]) * context)
            / sequences
            / FIXED_PER_S,
        )
        for part in parts
    }


def _prototypes(config: RunConfig) -> dict[Part, Replica]:
    """Return prototypes of the stages; if recutting, of every run of layers that fits a GPU with KV."""
    (model,), cut = hosted_models(config), required_cut(config)
    prototypes = {Part(model.name, span.start, span.stop): _prototype(config, span) for span in cut}
    if config.pipeline.recut == "none":
        return prototypes
    layers = cut[-1].stop
    for first in range(layers):
        for last in range(first + 1, layers + 1):
            try:
                prototype = _prototype(config, range(first, last))
            except (HardwareError, UserError):
                break
            prototypes.setdefault(Part(model.name, first, last), prototype)
    return prototypes


def _most_layers(parts: Collection[Part], layers: int) -> int:
    """Return the largest number of consecutive layers that fits wherever it begins."""
    spans = {part.layers for part in parts}
    return max(
        size
        for size in range(1, layers + 1)
        if all((first, first + size) in spans for first in range(layers - size + 1))
    )


def _prototype(config: RunConfig, layers: range) -> Replica:
    """Return a replica of a stage with number -1 and without a GPU."""
    (model,), engine = hosted_models(config), config.engine
    gpu, llm = load_gpu(config.cluster.gpu), model.shape
    memory = kv_memory(engine, gpu, llm, _TP, (layers,))
    blocks = memory.blocks
    return Replica(
        id=-1,
        model=model.name,
        layers=LayerRange(layers.start, layers.stop),
        gpus=(),
        kv_blocks=blocks,
        block_tokens=engine.block_tokens,
        watermark_blocks=int(engine.watermark * blocks),
        max_model_len=max_model_len(config, model),
        sequence_blocks=memory.sequence_blocks,
    )


def language_replicas(config: RunConfig) -> list[Replica]:
    """Return the replicas of the start in order of stages, each with its own GPU and KV memory.

    The first replicas of all stages are adjacent, then the second ones. Raises UserError.
    """
    cut = required_cut(config)
    counts = config.pipeline.counts(len(cut))
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
    replicas = list[Replica]()
    for stage, layers in enumerate(cut):
        prototype = _prototype(config, layers)
        for turn in range(counts[stage]):
            replicas.append(replace(prototype, id=len(replicas), gpus=(gpu_of[turn, stage],)))
    return replicas


def path_costs(config: RunConfig, hardware: Mapping[str, Hardware]) -> dict[str, PathCosts]:
    """Return, by model, the step times on a path of GPUs, whose links lie between its stages."""
    if not decodes_in_stages(config):
        return {}
    assert config.cluster.topology is not None, "models in stages need links"
    (model,), topology = hosted_models(config), build(spec_of_cluster(config.cluster))
    known: dict[tuple[tuple[int, ...], tuple[Span, ...]], StageRows] = {}

    def of(gpus: tuple[int, ...], spans: tuple[Span, ...]) -> StageRows:
        key = gpus, spans
        if key not in known:
            cut = tuple([range(*span) for span in spans])
            known[key] = stage_rows(config, hardware[model.name], hops_of(config, gpus, topology), cut)
        return known[key]

    return {model.name: PathCosts(of)}


def chains(config: RunConfig) -> int:
    """Return the number of replicas of the scarcest stage."""
    return min(config.pipeline.counts(len(required_cut(config))))
