"""What is measured, derived or assumed of a (model, GPU, tp), part by part, for ``servetwin support``.

Measured: timed on that GPU for operations of these sizes. Derived: composed or adopted from measurements of
something else (other shapes scaled, another GPU, arithmetic on datasheets with a measured rest).
Assumed: declared; no part of it was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.loading.loader import load_loader
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.step_profile import StepProfile
from hwmodels.step_times.all_reduce_catalogue import Imitated, load_all_reduce
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.linear_catalogue import linear_entry
from hwmodels.step_times.select import linear_key
from servetwin.assemble.hardware import engine_limits
from servetwin.config.compose.starting import start_terms_of
from servetwin.config.engine_config import EngineConfig
from servetwin.support.rungs import LIBRARY, Rung

MEASURED: Final = "measured"
DERIVED: Final = "derived"
ASSUMED: Final = "assumed"
NOTHING: Final = "-"
PHASES: Final = ("prefill", "decode", "mixed")
# Prefixes of catalogue sources that declare values without a measurement.
_DECLARED: Final = ("rough", "unknown", "none declared", "no software cost declared", "nothing declared")
_RESERVE: Final = "activation_reserve_bytes: "


@dataclass(frozen=True, slots=True)
class Evidence:
    """One part of what a run rests on: ``word`` is one of the four above, ``why`` is its source."""

    part: str
    word: str
    why: str


def step_evidence(
    *,
    gpu: Gpu,
    llm: LlmShape,
    tp: int,
    chosen: Rung,
    profile: Profile | StepProfile | None,
    imitated: Imitated,
) -> list[Evidence]:
    """Return the evidence for the operations of a step."""
    model = chosen.model
    assert model is not None
    if isinstance(profile, StepProfile):
        return _whole_steps(profile, tp, llm, model.errors.mixed.how)
    products, attention = _operations(gpu, llm, tp, chosen, profile)
    mixed = Evidence("mixed", ASSUMED, "steps with prompts and decodes: the parts are added")
    if model.interplay is not None:
        mixed = Evidence("mixed", MEASURED, "steps with prompts and decodes, in the same tables")
    reduce = _all_reduce(gpu, tp, chosen, imitated)
    return [products, attention, mixed, reduce, _experts(gpu, llm, tp, chosen, profile)]


def engine_evidence(
    gpu: Gpu, llm: LlmShape, engine: EngineConfig, overhead: EngineOverhead
) -> list[Evidence]:
    """Return the evidence for the engine's overhead, KV memory, and the start of instances."""
    if overhead.inside:
        added = Evidence("overhead", MEASURED, "inside the measured steps")
    elif overhead.error_s is not None:
        added = Evidence("overhead", DERIVED, overhead.source)
    else:
        added = Evidence("overhead", _declared_word(overhead.source), "see engine")
    return [added, _kv(gpu, engine), _loads(gpu, engine), _start_up(llm, engine)]


def held_out(chosen: Rung, gpu: Gpu, llm: LlmShape, tp: int) -> Mapping[str, tuple[float, float]]:
    """Return phase -> (mean, p95) in percent on grid lines held out from the catalogue coefficients' fit."""
    if chosen.kind != "linear":
        return {}
    return entry_errors(linear_entry(linear_key(gpu, llm, tp)))


def entry_errors(entry: Mapping[str, Any]) -> Mapping[str, tuple[float, float]]:
    """Return the errors of a catalogue entry; empty if it was not judged."""
    errors = entry.get("errors_percent", {})
    return {
        phase: (float(error["held_out_mean"]), float(error["held_out_p95"]))
        for phase, error in errors.items()
    }


def all_reduce_word(gpu: str, tp: int, imitated: Imitated) -> str:
    """Return the word for the catalogue's times between ``tp`` ranks; NOTHING if none are known."""
    try:
        return _label_word(load_all_reduce(gpu, imitated).of(tp).label)
    except HardwareError:
        return NOTHING


def _whole_steps(profile: StepProfile, tp: int, llm: LlmShape, mixed: str) -> list[Evidence]:
    word = MEASURED if profile.includes_overhead else DERIVED
    kind = "in whole steps" if profile.includes_overhead else "in sums of operations"
    known = [("products", word), ("attention", word)]
    known.append(("mixed", DERIVED if mixed == "held out" else ASSUMED))
    known.append(("all-reduce", word if tp > 1 else NOTHING))
    known.append(("experts", NOTHING if llm.experts is None else word))
    return [Evidence(part, source, kind if source != NOTHING else "none") for part, source in known]


def _operations(
    gpu: Gpu, llm: LlmShape, tp: int, chosen: Rung, profile: Profile | None
) -> tuple[Evidence, Evidence]:
    """Return the evidence for matrix products with norms and activations; for attention."""
    assert chosen.model is not None
    if chosen.kind == "roofline":
        why = f"shares of the datasheet's peaks, declared; {chosen.model.error_band}"
        return Evidence("products", ASSUMED, why), Evidence("attention", ASSUMED, why)
    if chosen.kind == LIBRARY:
        why = f"{chosen.model.source}; interpolated by the library, norms and activations estimated"
        return Evidence("products", MEASURED, why), Evidence("attention", MEASURED, why)
    if profile is not None:
        words = _words_of(" ".join(profile.stamp.notes))
        why = f"{profile.stamp.source}, {profile.stamp.engine} {profile.stamp.engine_version}"
        if chosen.kind == "calibrated_roofline":
            words, why = (DERIVED, DERIVED), f"a roofline fitted to {why}"
    else:
        key = linear_key(gpu, llm, tp)
        why = linear_entry(key)["source"]
        words = _words_of(why)
        why += "" if key.llm == llm.name else f"; the coefficients of {key.llm}, which has the same shape"
    return Evidence("products", words[0], why), Evidence("attention", words[1], why)


def _words_of(text: str) -> tuple[str, str]:
    """Return words for (products, attention) from the text of a source or of a profile's notes."""
    if text.startswith(_DECLARED):
        return ASSUMED, ASSUMED
    composed = any(words in text for words in ("composed", "was not measured", "computed from"))
    return DERIVED if composed else MEASURED, DERIVED if "times the batch" in text else MEASURED


def _all_reduce(gpu: Gpu, tp: int, chosen: Rung, imitated: Imitated) -> Evidence:
    if tp == 1:
        return Evidence("all-reduce", NOTHING, "none, one GPU")
    assert chosen.model is not None
    if chosen.kind == LIBRARY:
        return Evidence("all-reduce", MEASURED, "in the same tables")
    all_reduce = load_all_reduce(gpu.name, imitated).of(tp)
    labels = [label for label in chosen.model.labels if label.startswith("all-reduce")]
    if not labels and chosen.kind in ("linear", "roofline"):
        labels = [all_reduce.label]  # the catalogue's coefficients include the catalogue's all-reduces
    label = next(iter(labels), "")
    return Evidence("all-reduce", _label_word(label), label or all_reduce.source)


def _label_word(label: str) -> str:
    """Return the word for a run's label on all-reduces. No label: measured in the imitated engine."""
    if not label:
        return MEASURED
    return ASSUMED if "rough" in label else DERIVED


def _experts(gpu: Gpu, llm: LlmShape, tp: int, chosen: Rung, profile: Profile | None) -> Evidence:
    """Return the evidence for times by tokens and active experts. A run declares the choice of experts."""
    if llm.experts is None:
        return Evidence("experts", NOTHING, "none, a dense model")
    if chosen.kind == LIBRARY:
        return Evidence("experts", MEASURED, "in the same tables; which are chosen is declared")
    if profile is not None:
        return Evidence("experts", MEASURED, f"{profile.stamp.source}; which are chosen is declared")
    entry = linear_entry(linear_key(gpu, llm, tp))
    why = f"lines fitted to measured experts, {entry['experts_band']}; which are chosen is declared"
    return Evidence("experts", MEASURED, why)


def _declared_word(source: str) -> str:
    return ASSUMED if source.startswith(_DECLARED) else DERIVED


def _kv(gpu: Gpu, engine: EngineConfig) -> Evidence:
    if engine.kv_tokens is not None:
        return Evidence("kv memory", MEASURED, f"engine.kv_tokens={engine.kv_tokens}, as an engine logs it")
    if engine_limits(engine, gpu) is not None:
        why = f"memory x share - weights - what vLLM {engine.version} keeps free by its own profiling"
        return Evidence("kv memory", DERIVED, f"{why}, see kv memory")
    _, _, rest = gpu.source.partition(_RESERVE)
    reserve = engine.reserve_activation_bytes is None and rest.startswith("rough")
    word = ASSUMED if reserve else DERIVED
    return Evidence(
        "kv memory", word, f"memory x share - weights - a reserve; {rest or 'the run says which'}"
    )


def _loads(gpu: Gpu, engine: EngineConfig) -> Evidence:
    """Return the evidence for reads from host memory, as every second load is. Clusters define path rates."""
    source = load_loader(engine.loader, "dram").source
    word = _declared_word(source)
    if word == DERIVED and f"on an {gpu.name.upper()} " in source:
        word = MEASURED
    return Evidence("load rates", word, f"{engine.loader} from a host's memory: {source}")


def _start_up(llm: LlmShape, engine: EngineConfig) -> Evidence:
    try:
        terms = start_terms_of(engine)
    except HardwareError as error:
        return Evidence("start-up", NOTHING, str(error))
    sources = {source for name, source in terms.sources.items() if getattr(terms, name)}
    word = ASSUMED if not sources or any(source.startswith(_DECLARED) for source in sources) else DERIVED
    return Evidence("start-up", word, "see start")


def words_by_part(evidence: Sequence[Evidence]) -> dict[str, str]:
    """Map part to word."""
    return {part.part: part.word for part in evidence}
