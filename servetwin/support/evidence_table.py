"""The tables "measured, derived, assumed" of ``servetwin support``: one by coefficient, one by GPU."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.step_times.all_reduce_catalogue import Imitated
from hwmodels.step_times.linear_catalogue import LinearKey, linear_keys, linear_step_model
from servetwin.assemble.hardware import overhead_of
from servetwin.config.engine_config import EngineConfig
from servetwin.support.evidence import (
    NOTHING,
    PHASES,
    Evidence,
    all_reduce_word,
    engine_evidence,
    held_out,
    step_evidence,
    words_by_part,
)
from servetwin.support.rungs import Rung
from servetwin.support.table import aligned

_WIDTH: Final = 100
_RANKS: Final = (2, 4, 8)
_HEAD: Final = (
    "Measured, derived or assumed: step times of every GPU, model and tp with coefficients of measured "
    "operations, and their error in percent on grid lines that the fit had not seen (p95)"
)
_FOOT: Final = (
    "Derived: put together from what was measured of other shapes, on another GPU or in another version of "
    "the engine. A model of the same shape takes the same coefficients. Every other combination: assumed "
    "(roofline), off by 25 to 40 %; a mixture of experts that is not here needs a profile. "
    "Where each is from: servetwin support model=MODEL gpu=GPU tp=N"
)
_GPU_HEAD: Final = (
    "By GPU: all-reduce of 2, 4 and 8 ranks outside of coefficients, KV memory, load rates, and of "
    "engine={} overhead and start-up"
)


def evidence_tables(gpus: Sequence[Gpu], engine: EngineConfig) -> list[str]:
    """Return both tables with the meaning of their words."""
    rows = [["gpu", "model", "tp", "products", "attention", "mixed", "all-reduce", "experts", *PHASES]]
    rows += [_row(key, engine) for key in linear_keys()]
    by_gpu = [["gpu", *(f"tp {tp}" for tp in _RANKS), "kv memory", "load rates", "overhead", "start-up"]]
    by_gpu += [_gpu_row(gpu, engine) for gpu in gpus]
    return [
        *textwrap.wrap(_HEAD, _WIDTH), "", *aligned(rows, 1), "", *textwrap.wrap(_FOOT, _WIDTH), "",
        *textwrap.wrap(_GPU_HEAD.format(engine.name), _WIDTH), "", *aligned(by_gpu),
    ]  # fmt: skip


def evidence_lines(evidence: Sequence[Evidence], errors: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the word and source of each part; parts with the same source share a line."""
    by_why: dict[str, list[str]] = {}
    for part in evidence:
        if part.word != NOTHING:
            by_why.setdefault(part.why, []).append(f"{part.part} {part.word}")
    lines = [f"{', '.join(parts)}: {why}" for why, parts in by_why.items()]
    if errors:
        errors_text = ", ".join(f"{phase} {mean:.1f} / {p95:.1f} %" for phase, (mean, p95) in errors.items())
        lines.append(f"held-out error, mean / p95: {errors_text}")
    return lines


def _row(key: LinearKey, engine: EngineConfig) -> list[str]:
    gpu, llm = load_gpu(key.gpu), load_llm(key.llm)
    chosen = Rung("linear", linear_step_model(key))
    imitated = Imitated(engine.software, engine.version)
    words = words_by_part(
        step_evidence(gpu=gpu, llm=llm, tp=key.tp, chosen=chosen, profile=None, imitated=imitated)
    )
    errors = held_out(chosen, gpu, llm, key.tp)
    numbers = [f"{errors[phase][1]:.1f}" if phase in errors else NOTHING for phase in PHASES]
    parts = [words[part] for part in ("products", "attention", "mixed", "all-reduce", "experts")]
    return [key.gpu, key.llm, str(key.tp), *parts, *numbers]


def _gpu_row(gpu: Gpu, engine: EngineConfig) -> list[str]:
    imitated = Imitated(engine.software, engine.version)
    any_model: LlmShape = load_llm("llama3_8b")
    step = linear_step_model(linear_keys()[0])
    words = words_by_part(engine_evidence(gpu, any_model, engine, overhead_of(engine, step, any_model)))
    ranks = [all_reduce_word(gpu.name, tp, imitated) for tp in _RANKS]
    return [gpu.name, *ranks, *(words[part] for part in ("kv memory", "load rates", "overhead", "start-up"))]
