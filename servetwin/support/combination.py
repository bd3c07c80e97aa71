"""All data on one (model, GPU, tp): numbers, and sentences by section."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.importers.step_profile_file import is_step_profile, read_step_profile
from hwmodels.loading.starting import KINDS, Terms, after_weights, before_weights, seconds_of
from hwmodels.models.kv_capacity import KvCapacity
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import PRECISIONS
from hwmodels.profiles.profile_check import profile_problems
from hwmodels.profiles.profile_file import LoadedProfile, load_profile
from hwmodels.profiles.step_profile import LoadedSteps
from hwmodels.step_times.all_reduce_catalogue import Imitated
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from servetwin.assemble.hardware import kv_memory, overhead_of, precision_of
from servetwin.assemble.hosted import stored_shape
from servetwin.config.compose.starting import start_terms_of
from servetwin.config.engine_config import KV_CACHE_DTYPES, EngineConfig
from servetwin.config.overrides import echo
from servetwin.support.evidence import engine_evidence, held_out, step_evidence
from servetwin.support.evidence_table import evidence_lines
from servetwin.support.rungs import NOT_ASKED, Rung, chosen_rung, decode_s, prefill_s, rungs_of
from servetwin.support.table import smallest_for
from serving.vocabulary.errors import UserError

# The time to start an instance besides its parameters, for ``servetwin support``.


def start_lines(engine: EngineConfig, llm: LlmShape, tp: int) -> list[str]:
    """Return a line per kind of start, with its terms, and one with the sources of those that are not 0.

    No term depends on the GPU.
    """
    try:
        terms = start_terms_of(engine)
    except HardwareError as error:
        return [f"unless a run says, that of {engine.start_up} in loaders.yaml; {error}"]
    seconds = terms.of(llm.layers, tp, engine.max_num_seqs)
    cold = seconds_of((*before_weights("cold", seconds, False), *after_weights("cold", seconds, False)))
    lines = []
    for kind in KINDS:
        parts = (*before_weights(kind, seconds, True), *after_weights(kind, seconds, True))
        first = f"; the first on a host {cold:.3g} s" if kind == "cold" and cold > seconds_of(parts) else ""
        lines.append(f"{kind}: {seconds_of(parts):.3g} s and its parameters{_terms_text(parts)}{first}")
    sections: dict[str, list[str]] = {}
    for name, source in terms.sources.items():
        if getattr(terms, name):
            sections.setdefault(source, []).append(name)
    return [
        *lines,
        f"unless a run says which, that of {engine.start_up} in loaders.yaml",
        *(f"{', '.join(names)}: {source}" for source, names in sections.items()),
    ]


def _terms_text(parts: Terms) -> str:
    terms = " + ".join(f"{name.replace('_', ' ')} {seconds:.3g}" for name, seconds in parts if seconds)
    return f": {terms}" if terms else ""


SAMPLE_CONTEXT_TOKENS: Final = 1024
SAMPLE_DECODES: Final = (1, 32)
_GPUS: Final = re.compile(r"[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True)
class Combination:
    """The data on one combination: ``head`` names it, ``sections`` are paragraphs by label."""

    head: str
    numbers: dict[str, Any]
    sections: dict[str, list[str]]


def combination_of(options: Mapping[str, str], engine: EngineConfig) -> Combination:
    """Return the words' combination. UserError or HardwareError if it cannot be simulated."""
    gpu, llm = load_gpu(options["gpu"]), stored_model(options)
    tp = _tp(options, gpu, llm, engine)
    llm.require_tp(tp)
    loaded = _load_profile(Path(options["profile"])) if "profile" in options else None
    capacity = kv_memory(engine, gpu, llm, tp)
    tables = loaded.profile if loaded else None
    imitated = Imitated(engine.software, engine.version)
    rungs = rungs_of(gpu, llm, tp, tables, imitated)
    chosen = chosen_rung(rungs=rungs, gpu=gpu, llm=llm, tp=tp, profile=tables, imitated=imitated)
    assert chosen.model is not None
    overhead = overhead_of(engine, chosen.model, llm)
    evidence = step_evidence(gpu=gpu, llm=llm, tp=tp, chosen=chosen, profile=tables, imitated=imitated)
    evidence += engine_evidence(gpu, llm, engine, overhead)
    misfits = _misfits(loaded, gpu, llm, tp, engine) if loaded else []
    picked = "" if "tp" in options else " (the smallest tp that fits)"
    sections = {
        "model": model_lines(llm),
        "gpu": _gpu_lines(gpu, chosen),
        "step times": [*_step_lines(chosen, rungs), *misfits],
        "ladder": [_rung_line(rung, chosen, gpu, llm, tp) for rung in rungs],
        "kv memory": [f"{capacity.tokens} tokens", capacity.arithmetic],
        "engine": _engine_lines(overhead, engine),
        "known how": list(evidence_lines(evidence, held_out(chosen, gpu, llm, tp))),
        "start": list(start_lines(engine, llm, tp)),
        "sample times": _sample_lines(chosen, capacity, overhead),
    }
    numbers = {
        "model": llm.name, "gpu": gpu.name, "tp": tp, "engine": engine.name, "step_time": chosen.kind,
        "kv_tokens": capacity.tokens, "weight_bytes": llm.weight_bytes,
        "parameters": llm.parameters, "kv_bytes_per_token": llm.kv_bytes_per_token,
        "kv_bytes_per_sequence": llm.kv_bytes_per_sequence,
    }  # fmt: skip
    return Combination(f"{llm.name} on {tp} x {gpu.name}{picked}, engine {engine.name}", numbers, sections)


def _tp(options: Mapping[str, str], gpu: Gpu, llm: LlmShape, engine: EngineConfig) -> int:
    """Return the given tp, else the smallest that fits, else 1, for which the memory check then fails."""
    if "tp" not in options:
        return smallest_for(gpu, llm, engine) or 1
    text = options["tp"]
    if not _GPUS.fullmatch(text):
        raise UserError(f"tp={echo(text)} is no number of GPUs: write a whole one, such as tp=1")
    return int(text)


def stored_model(options: Mapping[str, str]) -> LlmShape:
    """Return the model, with the weights and KV in the words' formats."""
    for key, known in (("precision", PRECISIONS), ("kv_cache_dtype", KV_CACHE_DTYPES)):
        if options.get(key, known[0]) not in known:
            raise UserError(f"{key}={echo(options[key])} is unknown: write one of {', '.join(known)}")
    return stored_shape(options["model"], options.get("precision"), options.get("kv_cache_dtype", "auto"))


def _load_profile(path: Path) -> LoadedProfile | LoadedSteps:
    """Load a file of operation tables, or a folder of whole steps."""
    return read_step_profile(path) if is_step_profile(path) else load_profile(path)


def _misfits(
    loaded: LoadedProfile | LoadedSteps, gpu: Gpu, llm: LlmShape, tp: int, engine: EngineConfig
) -> list[str]:
    """Return a run's error for a profile that does not fit the engine's version or the model's width."""
    stamp, version = loaded.profile.stamp, engine.version
    problems = profile_problems(
        stamp,
        gpu=gpu.name,
        llm=llm.name,
        tp=tp,
        engine=engine.software,
        engine_version=version,
        precision=precision_of(llm),
    )
    if not problems:
        return []
    return [f"the profile does not fit: {'; '.join(problems)}; a run needs engine.profile_force=true"]


def model_lines(llm: LlmShape) -> list[str]:
    """Return the model's parameters, bytes of weights and of KV, and their source."""
    width = f"at {llm.bytes_per_parameter} bytes each"
    if llm.quantised:
        width = f"in {llm.formats.text}"
    active = f"; a token uses {llm.active_parameters / 1e9:.2f} billion" if llm.experts is not None else ""
    further = llm.checkpoint_parameters - llm.parameters
    predictors = f"; {further / 1e9:.2f} billion more predict further tokens" if further else ""
    kept = f" and {llm.kv_bytes_per_sequence} per sequence" if llm.kv_bytes_per_sequence else ""
    return [
        f"{llm.parameters / 1e9:.2f} billion parameters, {llm.weight_bytes / 1e9:.2f} GB {width}{active}"
        f"{predictors}; {llm.kv_bytes_per_token} bytes of KV per token{kept}; contexts up to "
        f"{llm.max_context_tokens}",
        llm.source,
    ]


def _gpu_lines(gpu: Gpu, chosen: Rung) -> list[str]:
    """Return the GPU's lines; its source only if the step times' source (as the roofline's) lacks it."""
    assert chosen.model is not None
    lines = [
        f"{gpu.memory_bytes / 1e9:.2f} GB usable, {gpu.memory_bandwidth_bytes_per_s / 1e9:.0f} GB/s, "
        f"{gpu.flops_per_s / 1e12:.1f} TFLOP/s dense",
    ]
    return lines if gpu.source in chosen.model.source else [*lines, gpu.source]


def _step_lines(chosen: Rung, rungs: Sequence[Rung]) -> list[str]:
    model = chosen.model
    assert model is not None
    limits = model.limits
    better = [rung.kind for rung in rungs[: rungs.index(chosen)] if rung.model is None]
    why = f"no {' and no '.join(better)} for this combination" if better else "the best rung there is"
    return [
        f"{chosen.kind}, because {why}" if better else f"{chosen.kind}, {why}",
        f"source: {model.source}",
        f"error: {model.error_band}",
        f"range of a run: {model.errors.told()}",
        *model.labels,
        f"valid up to {limits.max_decode_sequences} decoding sequences, {limits.max_context_tokens} tokens "
        f"of context in all, {limits.max_prefill_tokens} prompt tokens per step, prompts of "
        f"{limits.prompt_tokens} tokens",
    ]


def _rung_line(rung: Rung, chosen: Rung, gpu: Gpu, llm: LlmShape, tp: int) -> str:
    if rung.model is not None:
        return f"{rung.kind}: available{', used' if rung == chosen else ''}"
    if rung.refusal == NOT_ASKED:
        return f"{rung.kind}: {NOT_ASKED}"
    return f"{rung.kind}: not available; {rung.remedy(gpu.name, llm, tp)}"


def _engine_lines(overhead: EngineOverhead, engine: EngineConfig) -> list[str]:
    graphs = ", small batches padded to the captured sizes" if engine.overhead.cuda_graphs else ""
    sort = f" and {overhead.sort_s * 1e6:.3g} us to sort its logits" if overhead.sort_s else ""
    return [
        f"{overhead.step_s * 1e3:g} ms added to every step, {overhead.per_sequence_s * 1e6:g} us per sequence"
        f"{sort}{graphs}; source: {overhead.source}",
        f"range of a run: {overhead.ends()[2]}",
        f"at most {engine.max_num_seqs} sequences and {engine.max_num_batched_tokens} tokens in a step",
    ]


def _sample_lines(chosen: Rung, capacity: KvCapacity, overhead: EngineOverhead) -> list[str]:
    assert chosen.model is not None
    step, tokens = EngineStepModel(chosen.model, overhead), SAMPLE_CONTEXT_TOKENS
    times = [(f"prefill of {tokens} tokens", prefill_s(step, tokens), tokens)]
    for count in SAMPLE_DECODES:
        label = f"decode of {count} at context {tokens}"
        times.append((label, decode_s(step, count, count * tokens), count * tokens))
    lines = []
    for label, seconds, needed in times:
        shown = "outside the valid range" if seconds is None else f"{seconds * 1e3:9.3f} ms"
        lines.append(f"{label:<30}{shown}{' (more than the KV memory holds)' * (needed > capacity.tokens)}")
    return lines
