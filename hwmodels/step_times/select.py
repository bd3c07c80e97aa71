"""Selects the best rung of the step-time ladder that exists for a (GPU, model, tensor-parallel size)."""

from dataclasses import replace
from typing import Final, Literal, get_args

from hwmodels.catalogue import llm_names, load_llm
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Curve, Profile
from hwmodels.profiles.step_profile import StepProfile
from hwmodels.step_times.aiconfigurator_config import asked_of
from hwmodels.step_times.aiconfigurator_library import asked_group, knows, missing_times
from hwmodels.step_times.all_reduce_catalogue import Imitated, load_all_reduce
from hwmodels.step_times.expert_error import other_skew, routing_errors
from hwmodels.step_times.expert_times import SharedExperts, experts_of, lined
from hwmodels.step_times.library_step import library_model
from hwmodels.step_times.linear_catalogue import LinearKey, linear_experts, linear_keys, linear_step_model
from hwmodels.step_times.linear_fit import linear_model, tiled_model
from hwmodels.step_times.linear_step import LinearStepModel, TiledStepModel
from hwmodels.step_times.mixture_step import MixtureStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.roofline_experts import roofline_experts
from hwmodels.step_times.roofline_fit import roofline_model
from hwmodels.step_times.roofline_step import (
    MAX_PREFILL_TOKENS,
    RooflineStepModel,
    efficiencies_of,
    roofline_step_model,
)
from hwmodels.step_times.step_time import StepModel
from hwmodels.step_times.whole_step import WholeStepModel
from hwmodels.step_times.whole_step_error import whole_step_model

_BY_ROOFLINE: Final = "experts and attention are a roofline by the datasheet: neither was measured"
StepModelKind = Literal[
    "auto", "whole_step", "op_table", "linear", "calibrated_roofline", "roofline", "aiconfigurator"
]


def step_model(
    kind: str,
    gpu: Gpu,
    llm: LlmShape,
    *,
    tp: int,
    profile: Profile | StepProfile | None = None,
    imitated: Imitated | None = None,
    parallelism: Parallelism | None = None,
    expert_skew: float = 0.0,
    shared_tokens: int | None = None,
) -> StepModel:
    """The step model of one replica of ``llm`` on ``tp`` of ``gpu``: its operations, no engine overhead.

    With a profile of whole steps, 'whole_step' (or 'auto') uses it. With one of operations, 'op_table' (or
    'auto') uses its tables, and 'linear' and 'calibrated_roofline' are fitted to them. Without a profile
    'linear' uses the catalogue's coefficients. 'auto' takes them if they exist for this GPU, tp and a model
    of exactly this shape, else 'roofline', the datasheet's. ``imitated``: the engine whose all-reduce times
    are used. For a mixture of experts whose engines step together (``parallelism.dp`` above 1) the model is
    an engine's own part: ``shared_experts`` has the common part. ``shared_tokens``: sequences may hold the
    same tokens, of so many different ones at most. 'aiconfigurator' asks NVIDIA's library; 'auto' does where
    nothing else knows the numbers (``asks_library``).
    """
    if kind not in get_args(StepModelKind):
        raise HardwareError(f"unknown step model {kind!r}; write one of {', '.join(get_args(StepModelKind))}")
    parallelism = parallelism or Parallelism(tp)
    parallelism.check(llm)
    if kind == "whole_step" or isinstance(profile, StepProfile):
        return _of_whole_steps(kind, profile, parallelism)
    if kind == "aiconfigurator" or (kind == "auto" and profile is None and _answers(gpu, llm, parallelism)):
        return library_model(gpu.name, llm, parallelism)
    if llm.experts is not None:
        return _of_mixture(
            kind,
            gpu=gpu,
            llm=llm,
            parallelism=parallelism,
            profile=profile,
            imitated=imitated,
            expert_skew=expert_skew,
            shared_tokens=shared_tokens,
        )
    if kind in ("op_table", "calibrated_roofline") or (kind in ("auto", "linear") and profile is not None):
        fitted = _on_profile(kind, _required(kind, profile, gpu, llm, tp), gpu, llm, tp)
        return _of_shared(fitted, shared_tokens)
    key = linear_key(gpu, llm, tp)
    if kind == "linear" and llm.quantised:
        raise HardwareError(
            f"engine.step_time=linear has coefficients of 16-bit models, and {llm.name} is in "
            f"{llm.formats.text}: write engine.step_time=roofline, or leave model.precision and "
            "engine.kv_cache_dtype out"
        )
    if kind == "linear" or (kind == "auto" and key in linear_keys()):
        return _of_shared(linear_step_model(key), shared_tokens)
    return _of_shared(_declared(gpu, llm, tp, imitated), shared_tokens)


def _declared(gpu: Gpu, llm: LlmShape, tp: int, imitated: Imitated | None) -> RooflineStepModel:
    """The datasheet's roofline; of a mixture all but the routed experts."""
    links = load_all_reduce(gpu.name, imitated)
    model = roofline_step_model(gpu, llm, tp, all_reduce=links, efficiencies=efficiencies_of(gpu))
    return model if llm.experts is None else replace(model, labels=(*model.labels, _BY_ROOFLINE))


def _roofline_experts(gpu: Gpu, llm: LlmShape, parallelism: Parallelism) -> SharedExperts:
    shares = efficiencies_of(gpu)
    return roofline_experts(
        gpu,
        llm,
        parallelism,
        compute=shares.compute,
        memory=shares.memory,
        all_reduce=load_all_reduce(gpu.name),
        last_tokens=MAX_PREFILL_TOKENS,
    )


def asks_library(gpu: Gpu, llm: LlmShape, parallelism: Parallelism) -> bool:
    """Whether ``auto`` asks AIConfigurator's library: it alone has tables of these numbers on this GPU.

    16-bit models keep the catalogue's coefficients or the datasheet; a mixture without coefficients is asked.
    """
    if not knows(gpu.name) or not asked_of(llm):
        return False
    if llm.experts is None:
        return llm.quantised
    return llm.quantised or not _in_catalogue(gpu, llm, parallelism)


def _in_catalogue(gpu: Gpu, llm: LlmShape, parallelism: Parallelism) -> bool:
    """Whether the catalogue has coefficients of a mixture that is shared like this."""
    key = linear_key(gpu, llm, parallelism.tp)
    return key in linear_keys() and linear_experts(key).knows(parallelism)


def _declares(kind: str, gpu: Gpu, llm: LlmShape, parallelism: Parallelism) -> bool:
    """Whether a mixture without measured times is a roofline: as asked, or as ``auto`` has nothing else."""
    return kind == "roofline" or (kind == "auto" and not _in_catalogue(gpu, llm, parallelism))


def _answers(gpu: Gpu, llm: LlmShape, parallelism: Parallelism) -> bool:
    """Whether ``auto`` takes the library's times: it is asked, and has all of them.

    Raises HardwareError if it is asked and not installed: which times a run has is not left to chance.
    """
    return asks_library(gpu, llm, parallelism) and not missing_times(gpu.name, llm, parallelism)


def of_stages(model: StepModel, resident_tokens: int) -> StepModel:
    """A roofline whose model is cut into stages: each has memory of its own, so the smallest bounds contexts.

    ``resident_tokens``: different tokens of which every stage can hold its part.
    """
    if not isinstance(model, RooflineStepModel) or resident_tokens <= model.limits.max_context_tokens:
        return model
    return replace(model, limits=replace(model.limits, max_context_tokens=resident_tokens, shared=True))


def _of_shared(model: StepModel, shared_tokens: int | None) -> StepModel:
    """The same lines for sequences that hold the same tokens, if it answers for all different ones together.

    Its time is a line over the total context, and a token that several sequences hold is read by each.
    """
    lines = RooflineStepModel | LinearStepModel | TiledStepModel
    if shared_tokens is None or not isinstance(model, lines):
        return model
    if shared_tokens > model.limits.max_context_tokens:
        return model
    return replace(model, limits=replace(model.limits, shared=True))


def shared_experts(
    gpu: Gpu,
    llm: LlmShape,
    parallelism: Parallelism,
    profile: Profile | None,
    kind: str = "auto",
) -> SharedExperts:
    """The known times of the experts: of a profile, of the library, of the catalogue, or by the roofline."""
    if profile is not None:
        return lined(profile) if kind == "linear" else experts_of(profile)
    if kind == "aiconfigurator" or (kind == "auto" and _answers(gpu, llm, parallelism)):
        return asked_group(gpu.name, llm, parallelism)
    if _declares(kind, gpu, llm, parallelism):
        return _roofline_experts(gpu, llm, parallelism)
    return linear_experts(linear_key(gpu, llm, parallelism.tp))


def _of_mixture(
    kind: str,
    *,
    gpu: Gpu,
    llm: LlmShape,
    parallelism: Parallelism,
    profile: Profile | None,
    imitated: Imitated | None,
    expert_skew: float,
    shared_tokens: int | None,
) -> StepModel:
    """The experts of a step beside the rest of it; without measurements both by the datasheet's roofline."""
    key = linear_key(gpu, llm, parallelism.tp)
    if kind == "calibrated_roofline" or (kind == "op_table" and profile is None):
        raise HardwareError(
            f"engine.step_time={kind} has no expert times for {llm.name} on {gpu.name} tp={parallelism.tp}: "
            "write engine.profile=FILE, made with servetwin profile import, and engine.step_time=auto; or "
            "engine.step_time=roofline"
        )
    if kind == "linear" and profile is None and key not in linear_keys():
        raise HardwareError(
            f"no expert times for {llm.name} on {gpu.name} tp={parallelism.tp} in the catalogue: write "
            "engine.step_time=auto"
        )
    experts = shared_experts(gpu, llm, parallelism, profile, kind)
    times = experts.times(llm, parallelism, expert_skew)
    declared = profile is None and _declares(kind, gpu, llm, parallelism)
    whole = _declared(gpu, llm, parallelism.tp, imitated) if declared else _rest(kind, gpu, llm, key, profile)
    rest = _of_shared(whole, shared_tokens)
    model = MixtureStepModel(rest, times, parallelism.dp == 1)
    if parallelism.dp > 1:
        return model
    other = experts.times(llm, parallelism, other_skew(expert_skew))
    largest = model.limits.max_prefill_tokens, model.limits.max_decode_sequences
    routed = routing_errors(times, other, lambda tokens: model.dense_s(tokens, 1, 0), largest)
    model.errors = model.errors.beside(routed)
    return model


def _rest(kind: str, gpu: Gpu, llm: LlmShape, key: LinearKey, profile: Profile | None) -> StepModel:
    """All of a step except the experts, as measured."""
    if profile is None:
        return linear_step_model(key)
    measured = _required(kind, profile, gpu, llm, key.tp)
    if kind == "linear":
        return tiled_model(measured)
    return OpTableStepModel(measured, profile.stamp.error_band)


def includes_overhead(model: StepModel) -> bool:
    """Whether the model's times contain the engine's overhead, so that none may be added."""
    whole = LinearStepModel | TiledStepModel | WholeStepModel
    return isinstance(model, whole) and model.includes_overhead


def _of_whole_steps(kind: str, profile: Profile | StepProfile | None, parallelism: Parallelism) -> StepModel:
    if parallelism.dp > 1:
        raise HardwareError(
            "a profile of whole steps describes a single engine, and data-parallel engines need separate "
            "expert times: name a profile of operations"
        )
    if not isinstance(profile, StepProfile):
        raise HardwareError("the step model 'whole_step' needs a profile of whole steps: name its folder")
    if kind not in ("auto", "whole_step"):
        raise HardwareError(
            f"the step model {kind!r} cannot use a profile of whole steps: write 'auto' or 'whole_step', or "
            "name a profile of operations"
        )
    return whole_step_model(profile)


def linear_key(gpu: Gpu, llm: LlmShape, tp: int) -> LinearKey:
    """The catalogue key of these coefficients; or that of a model with the same shape if only it has them."""
    named = LinearKey(gpu.name, f"{llm.name} in {llm.formats.text}" if llm.quantised else llm.name, tp)
    known = linear_keys()
    if named in known:
        return named
    same = (key for key in known if (key.gpu, key.tp) == (gpu.name, tp) and _same_shape(llm, key.llm))
    return next(same, named)


def _same_shape(llm: LlmShape, name: str) -> bool:
    return name in llm_names() and llm.computes_like(load_llm(name))


def _on_profile(kind: str, profile: Profile, gpu: Gpu, llm: LlmShape, tp: int) -> StepModel:
    if kind == "linear":
        return linear_model(profile)
    if kind == "calibrated_roofline":
        return roofline_model(profile, gpu, llm, tp)
    return OpTableStepModel(profile, profile.stamp.error_band)


def _required(kind: str, profile: Profile | None, gpu: Gpu, llm: LlmShape, tp: int) -> Profile:
    """The profile, with the catalogue's all-reduce if that of its ranks was not measured.

    Whether the profile is of this GPU and model is checked by hwmodels.profiles.profile_check.
    """
    if profile is None:
        raise HardwareError(f"the step model {kind!r} needs a profile: name one, or write 'auto'")
    if tp == 1 or profile.tables.all_reduce is not None:
        return profile
    stamp = profile.stamp
    link = load_all_reduce(gpu.name, Imitated(stamp.engine, stamp.engine_version))
    times, step = link.of(tp), link.of_step(llm, tp)
    last = profile.tables.dense.counts[-1]
    # Both sides of the start of a stretch are points, so that a jump stays a jump.
    starts = {stretch.from_size - before for stretch in step.stretches for before in (0, 1)}
    counts = sorted({*profile.tables.dense.counts, *(count for count in starts if 0 < count <= last)})
    curve = Curve(tuple(counts), tuple(step.seconds(tokens) for tokens in counts))
    note = f"all-reduce between the {tp} ranks is the catalogue's: {times.source}"
    other_notes = (old for old in stamp.notes if not old.startswith("all-reduce"))
    notes = (*other_notes, note, *([times.label] if times.label else []))
    return Profile(replace(stamp, notes=notes), replace(profile.tables, all_reduce=curve))
