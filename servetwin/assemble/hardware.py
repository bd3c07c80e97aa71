"""The capacity of a replica of each model: step times, KV memory, and how both were found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import is_stack, load_stack
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.kv_capacity import (
    KvCapacity,
    kept_free,
    kv_capacity,
    sequence_blocks_of,
    sequences_told,
)
from hwmodels.models.layer_stack import LayerStack
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.stage_cuts import Cut
from hwmodels.models.vllm_memory import EngineLimits, profiled_by
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.profile_check import OTHER_VERSION, Loaded, require_profile
from hwmodels.profiles.step_profile import StepProfile
from hwmodels.step_times.aiconfigurator_library import knows, tables_stamp
from hwmodels.step_times.all_reduce_catalogue import Imitated
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel, vllm_graph_batches
from hwmodels.step_times.engine_terms import engine_terms, errors_in_runs, has_engine_terms
from hwmodels.step_times.expert_error import group_ends_s, other_skew
from hwmodels.step_times.expert_rows import ExpertRows, GroupTimes
from hwmodels.step_times.rows import StepRows
from hwmodels.step_times.scaled_rows import ScaledRows
from hwmodels.step_times.select import includes_overhead, of_stages, shared_experts, step_model
from hwmodels.step_times.stack_step import StackStep
from hwmodels.step_times.step_error import StepErrors
from hwmodels.step_times.step_time import StepModel
from hwmodels.step_times.unequal_contexts import UnequalContexts, unequal_contexts
from hwmodels.step_times.whole_step import WholeStepModel
from servetwin.assemble.hosted import hosted_models, run_shape
from servetwin.assemble.library_tables import check_library_tables
from servetwin.assemble.stage_cut import cut_of
from servetwin.config.config import RunConfig
from servetwin.config.engine_config import EngineConfig
from servetwin.config.trace_config import TOP_P_ALL, TOP_P_OF_MODEL
from servetwin.config.vllm_defaults import batch_defaults
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Role

# Number format by bytes per weight; the catalogue's CPU core computes in fp32.
_PRECISION = {2: "bf16", 4: "fp32"}
OVERHEAD_INSIDE = "none: the measured times are of whole steps"
_CPU = "cpu_core"
_IMITATED = "vllm_v1"  # the engine whose attention kernels unequal_contexts.yaml names


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileUse:
    """The profile that a run's step times come from; ``forced``: why it would have been refused.
    ``other_version``: for nothing but the engine's version.

    ``files``: (name, sha256) of its files. ``noise``: the profile's own statement why it is not to be
    trusted.
    """

    path: str
    digest: str
    forced: tuple[str, ...]
    other_version: bool = False
    files: tuple[tuple[str, str], ...] = ()
    noise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One replica: ``rows`` are its compiled step times, ``step`` is the model behind them.

    ``sequence_blocks``: see ``Replica``.
    ``kv_ends``: the fewest and the most KV blocks; None: exactly ``kv_blocks``.
    ``prompts_factor``: scales steps with prompts alone, at an end of a range.
    ``errors``: what measured runs of the engine say about its steps; None: the step model's own errors count.
    ``unequal``: what unequal contexts cost, where nothing measured it and an engine's kernel is imitated.
    ``experts``: the joint work of a data-parallel group's engines; ``rows`` is then one engine's own part.
    ``decode``: decode instances, if they have another number of GPUs than the others.
    """

    rows: StepRows | ScaledRows
    step: StepModel
    overhead: EngineOverhead
    profile: ProfileUse | None
    kv_blocks: int
    kv_arithmetic: str
    layers: int
    sequence_blocks: int = 0
    kv_ends: tuple[int, int] | None = None
    experts: ExpertRows | None = None
    prompts_factor: float = 1.0
    errors: StepErrors | None = None
    unequal: UnequalContexts | None = None
    decode: "Hardware | None" = None

    def of_role(self, role: Role) -> "Hardware":
        """Return that of an instance of this role."""
        return self if role != "decode" or self.decode is None else self.decode

    def together(self, tokens: Sequence[int]) -> int:
        """Return the time of a group's joint work in a step with these tokens, in fixed point."""
        return 0 if self.experts is None else self.experts.group_cost(tokens)


def hardware_of(config: RunConfig) -> dict[str, Hardware]:
    """Map each hosted model to its replica's capacity; models of one shape and tp share the object.

    Raises HardwareError if a model does not fit.
    """
    hosted = hosted_models(config)
    kinds = dict.fromkeys((model.shape_name, model.tp) for model in hosted)
    by_kind = {kind: _of_shape(config, *kind) for kind in kinds}
    found = {model.name: by_kind[model.shape_name, model.tp] for model in hosted}
    for model in hosted:
        if model.decode_tp is not None:
            decode = _of_shape(config, model.shape_name, model.decode_tp)
            found[model.name] = replace(found[model.name], decode=decode)
    return found


def _of_stack(stack: LayerStack) -> Hardware:
    """Return a pass over all layers; a replica has some of them (``servetwin.assemble.stages``)."""
    overhead = EngineOverhead(source=OVERHEAD_INSIDE, inside=True)
    step = EngineStepModel(StackStep(stack), overhead)
    return Hardware(
        rows=StepRows(step),
        step=step,
        overhead=overhead,
        profile=None,
        kv_blocks=1,
        kv_arithmetic="it keeps no KV",
        layers=stack.layers,
    )


def _of_shape(config: RunConfig, shape_name: str, tp: int) -> Hardware:
    if is_stack(shape_name):
        return _of_stack(load_stack(shape_name))
    engine, gpu, llm = config.engine, load_gpu(config.cluster.gpu), run_shape(config, shape_name)
    profile, use = _profile_of(engine, gpu, llm, tp)
    imitated = Imitated(engine.software, engine.version)
    shared = parallelism_of(engine, tp)
    if engine.expert_skew and llm.experts is None:
        raise HardwareError(f"{llm.name} has no experts to choose from: leave engine.expert_skew out")
    cut = cut_of(config, llm)
    kv = kv_memory(engine, gpu, llm, tp, cut)
    operations = step_model(
        engine.step_time,
        gpu,
        llm,
        tp=tp,
        profile=profile,
        imitated=imitated,
        parallelism=shared,
        expert_skew=engine.expert_skew,
        shared_tokens=kv.ends[1] * engine.block_tokens if engine.prefix_caching else None,
    )
    if engine.step_time_tables is not None and knows(gpu.name):
        check_library_tables(engine.step_time_tables, tables_stamp(gpu.name))
    if cut is not None:
        operations = of_stages(operations, kv.ends[1] * engine.block_tokens)
    overhead = overhead_of(engine, operations, llm, config.trace.top_p)
    unequal = _unequal(engine, gpu, llm, tp, operations)
    step = EngineStepModel(operations, overhead, None if unequal is None else unequal.usual)
    _check_limits(engine, gpu, step)
    experts = _experts_of(engine=engine, gpu=gpu, llm=llm, shared=shared, profile=profile, overhead=overhead)
    return Hardware(
        rows=StepRows(step),
        step=step,
        overhead=overhead,
        profile=use,
        kv_blocks=kv.blocks,
        kv_arithmetic=kv.arithmetic,
        sequence_blocks=kv.sequence_blocks,
        layers=llm.layers,
        kv_ends=None if kv.fewest is None or config.system.in_stages else kv.ends,
        experts=experts,
        errors=None
        if use is not None and use.forced and not use.other_version
        else _errors_in_runs(engine, gpu, operations),
        unequal=unequal,
    )


def _unequal(
    engine: EngineConfig, gpu: Gpu, llm: LlmShape, tp: int, operations: StepModel
) -> UnequalContexts | None:
    """Return what unequal contexts cost if the engine is vLLM's of today and no table measured it.

    None for whole steps too: they were timed in an engine with the contexts that came.
    """
    measured = operations.interplay is not None and operations.interplay.skewed
    if engine.name != _IMITATED or gpu.name == _CPU or measured or isinstance(operations, WholeStepModel):
        return None
    return unequal_contexts(gpu, llm, tp)


def _errors_in_runs(engine: EngineConfig, gpu: Gpu, operations: StepModel) -> StepErrors | None:
    """Return the error that measured runs show; None if the overhead does not claim to be as well fitted."""
    declared = engine.overhead
    if declared.error_s is None or not has_engine_terms(engine.software):
        return None
    fitted = engine_terms(engine.software, engine.version)["overhead"]
    if declared.error_s > fitted["error_s"]:
        return None
    if engine.step_time_tables is not None:
        return operations.errors
    return errors_in_runs(operations, gpu.name, engine.software, engine.version)


def parallelism_of(engine: EngineConfig, tp: int) -> Parallelism:
    """Return how engines of ``tp`` GPUs share a mixture's experts."""
    return Parallelism(tp, engine.data_parallel_size, engine.enable_expert_parallel)


def _experts_of(
    *,
    engine: EngineConfig,
    gpu: Gpu,
    llm: LlmShape,
    shared: Parallelism,
    profile: Profile | StepProfile | None,
    overhead: EngineOverhead,
) -> ExpertRows | None:
    """Return the joint work of engines that step together; None if they do not."""
    if shared.dp == 1 or isinstance(profile, StepProfile):
        return None
    known = shared_experts(gpu, llm, shared, profile, engine.step_time)
    times = known.times(llm, shared, engine.expert_skew)
    other = known.times(llm, shared, other_skew(engine.expert_skew))
    both = GroupTimes(times.experts_s, times.moved_s)
    return ExpertRows(both, overhead, group_ends_s(times, other, known.error_band))


def _check_limits(engine: EngineConfig, gpu: Gpu, step: StepModel) -> None:
    """Check that the engine's step limits lie in the range of the step times, even if never reached."""
    limits, by_gpu = step.limits, batch_defaults(gpu, engine.usage_context)
    for key, largest, noun in (
        ("max_num_seqs", limits.max_decode_sequences, "sequences"),
        ("max_num_batched_tokens", limits.max_prefill_tokens, "prompt tokens of a step"),
    ):
        value = getattr(engine, key)
        default = (
            f", vLLM's default on {gpu.name}," if engine.name == "vllm_v1" and value == by_gpu[key] else ""
        )
        _check_range(key, value, largest, noun, default)


def _check_range(key: str, value: int, largest: int, noun: str, default: str) -> None:
    """Refuse a value above ``largest``. ``default``: error text for a value the user did not write."""
    if value > largest:
        raise UserError(
            f"engine.{key}={value}{default} is beyond the {largest} {noun} that the step-time model knows: "
            f"write engine.{key}={largest} or less, or engine.step_time=roofline without engine.profile"
        )


def overhead_of(
    engine: EngineConfig, operations: StepModel, llm: LlmShape, top_p: str = TOP_P_OF_MODEL
) -> EngineOverhead:
    """Return the engine's overhead for a model; none if the step times include it.

    ``top_p``: which requests sample with it (``trace.top_p``). One in a step has all its sequences sorted.
    """
    declared = engine.overhead
    if includes_overhead(operations):
        return EngineOverhead(source=OVERHEAD_INSIDE, inside=True)
    largest = min(2 * engine.max_num_seqs, engine.max_num_batched_tokens)
    return EngineOverhead(
        step_s=declared.step_s + declared.per_layer_s * llm.layers,
        per_sequence_s=declared.per_sequence_s,
        graph_batches=vllm_graph_batches(largest) if declared.cuda_graphs else (),
        source=declared.source,
        error_s=declared.error_s,
        per_sequence_error_s=declared.per_sequence_error_s or 0.0,
        per_output_token_s=declared.per_output_token_s,
        per_logit_s=declared.per_logit_s,
        sorted_logits=llm.vocab if declared.per_logit_s and _samples_with_top_p(llm, top_p) else 0,
    )


def _samples_with_top_p(llm: LlmShape, top_p: str) -> bool:
    return llm.top_p if top_p == TOP_P_OF_MODEL else top_p == TOP_P_ALL


def precision_of(llm: LlmShape) -> str:
    """Return the number format that a run computes in."""
    if llm.quantised:
        return llm.formats.text
    return _PRECISION.get(llm.bytes_per_parameter, f"{8 * llm.bytes_per_parameter}-bit")


def _profile_of(
    engine: EngineConfig, gpu: Gpu, llm: LlmShape, tp: int
) -> tuple[Profile | StepProfile | None, ProfileUse | None]:
    """Return the engine's profile. Refuse one that does not fit the run, unless forced."""
    if engine.profile is None:
        return None, None
    from hwmodels.importers.step_profile_file import is_step_profile, read_step_profile
    from hwmodels.profiles.profile_file import load_profile

    path = Path(engine.profile)
    if is_step_profile(path):
        return _fitting(read_step_profile(path), engine=engine, path=engine.profile, gpu=gpu, llm=llm, tp=tp)
    return _fitting(
        load_profile(path, engine.profile_force), engine=engine, path=engine.profile, gpu=gpu, llm=llm, tp=tp
    )


def _fitting(
    profile: Loaded, *, engine: EngineConfig, path: str, gpu: Gpu, llm: LlmShape, tp: int
) -> tuple[Profile | StepProfile, ProfileUse]:
    loaded = require_profile(
        profile,
        path=path,
        gpu=gpu.name,
        llm=llm.name,
        tp=tp,
        engine=engine.software,
        engine_version=engine.version,
        precision=precision_of(llm),
        force=engine.profile_force,
        kept=""
        if engine.asynchronous
        else "engine.asynchronous=false",  # a system that splits roles needs it
    )
    stamp = loaded.profile.stamp
    use = ProfileUse(
        path=path,
        digest=loaded.digest,
        forced=loaded.problems,
        other_version=all(problem.startswith(OTHER_VERSION) for problem in loaded.problems),
        files=stamp.files,
        noise=stamp.noise,
    )
    return loaded.profile, use


def engine_limits(engine: EngineConfig, gpu: Gpu) -> EngineLimits | None:
    """Return what decides the engine's own reserve; None: it is not known, or the user named a reserve."""
    known = engine.software == "vllm" and gpu.name != _CPU and profiled_by(engine.version)
    if engine.reserve_activation_bytes is not None or not known:
        return None
    largest = min(2 * engine.max_num_seqs, engine.max_num_batched_tokens)
    return EngineLimits(
        version=engine.version,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        captured=vllm_graph_batches(largest) if engine.overhead.cuda_graphs else (),
    )


def reserve_bytes(engine: EngineConfig, gpu: Gpu, llm: LlmShape, tp: int) -> int:
    """Return what each GPU of a replica keeps free of KV."""
    return kept_free(gpu, llm, tp, engine_limits(engine, gpu), engine.reserve_activation_bytes).size_bytes


def kv_memory(engine: EngineConfig, gpu: Gpu, llm: LlmShape, tp: int, cut: Cut | None = None) -> KvCapacity:
    """Return the KV memory that one replica may use. Raises HardwareError if the model does not fit.

    ``cut``: its stages. A block has a part in every stage, so the stage with the fewest blocks decides, and
    the one whose windows and states take the most of them.
    """
    block_tokens = engine.block_tokens
    own_blocks = max(
        [sequence_blocks_of(llm, tp=tp, block_tokens=block_tokens, layers=part) for part in cut or (None,)]
    )
    if engine.kv_tokens is not None:
        blocks = engine.kv_tokens // engine.block_tokens
        capacity = KvCapacity(blocks=blocks, tokens=blocks * engine.block_tokens, arithmetic="")
        arithmetic = f"engine.kv_tokens={engine.kv_tokens} // {engine.block_tokens} = {blocks} blocks"
        size_bytes = llm.kv_sequence_bytes_on(tp, range(llm.layers))
        arithmetic += sequences_told(own_blocks, blocks, block_tokens, size_bytes)
    else:
        capacities = [
            kv_capacity(
                gpu,
                llm,
                tp=tp,
                memory_utilization=engine.gpu_memory_utilization,
                block_tokens=engine.block_tokens,
                activation_reserve_bytes=engine.reserve_activation_bytes,
                limits=engine_limits(engine, gpu),
                layers=part,
                data_parallel=engine.data_parallel_size,
            )
            for part in cut or (None,)
        ]
        capacity = min(capacities, key=lambda kv: kv.blocks)
        blocks, arithmetic = capacity.blocks, capacity.arithmetic
        if cut is not None:
            part = cut[capacities.index(capacity)]
            arithmetic = f"least of {len(cut)} stages, layers {part.start} to {part.stop}: {arithmetic}"
    usable = blocks - engine.reserved_blocks
    if usable <= own_blocks and own_blocks:
        raise UserError(
            f"the {usable} KV blocks hold no sequence of {llm.name}, whose windows and states take "
            f"{own_blocks}: write a larger engine.kv_tokens, model.tp or GPU"
        )
    if usable < 1:
        raise UserError(
            f"engine.reserved_blocks={engine.reserved_blocks} leaves none of the {blocks} KV blocks: "
            "write a smaller number"
        )
    if engine.reserved_blocks:
        arithmetic += f"; {engine.reserved_blocks} of the blocks cannot be used, {usable} can"
    tokens = usable * engine.block_tokens
    if capacity.fewest is None:
        return KvCapacity(blocks=usable, tokens=tokens, arithmetic=arithmetic, sequence_blocks=own_blocks)
    fewest, most = (max(1 + own_blocks, end - engine.reserved_blocks) for end in capacity.ends)
    return KvCapacity(
        blocks=usable,
        tokens=tokens,
        arithmetic=arithmetic,
        fewest=fewest,
        most=most,
        sequence_blocks=own_blocks,
    )
