"""Linear coefficients in the catalogue: which exist, and the step model built from them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple, cast

from hwmodels.catalogue import LINEAR_COMPOSED_FILE, LINEAR_FILE, catalogue_text, load_llm
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Exchange
from hwmodels.step_times.all_reduce import StepAllReduce, Stretch
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.expert_lines import ExpertLines
from hwmodels.step_times.expert_times import SharedExperts
from hwmodels.step_times.linear_step import (
    ChunkLine,
    DecodeLine,
    DenseLines,
    LinearCoefficients,
    LinearStepModel,
    MixedAttention,
    TiledStepModel,
)
from hwmodels.step_times.step_error import StepErrors, all_reduce_errors, catalogue_errors
from hwmodels.step_times.step_time import StepLimits
from hwmodels.yaml_text import yaml_data

# An entry of the files: it begins with its key, and goes on in lines that are indented, empty or remarks.
_ENTRY: Final = re.compile(
    r"^- gpu: (?P<gpu>\S+)\n  llm: (?P<llm>\S+)\n  tp: (?P<tp>\d+)\n(?:(?: |#).*\n|\n)*", re.MULTILINE
)
ROUGH_ERROR_BAND = "rough declaration, error unknown: may be off by a factor of 2"


class LinearKey(NamedTuple):
    """The (GPU, model, tp) that a set of coefficients is for."""

    gpu: str
    llm: str
    tp: int

    def __str__(self) -> str:
        return f"{self.llm} on {self.gpu} tp={self.tp}"


def linear_keys() -> tuple[LinearKey, ...]:
    """Every (GPU, model, tp) with coefficients, sorted."""
    return tuple(sorted(_written()))


@cache
def linear_entry(key: LinearKey) -> Mapping[str, Any]:
    """The catalogue entry of ``key`` as written in linear.yaml."""
    text = _written().get(key)
    if text is not None:
        (entry,) = yaml_data(text)
        return cast(Mapping[str, Any], entry)
    known = "; ".join(str(known) for known in linear_keys())
    raise HardwareError(f"no linear step coefficients for {key}: write kind 'roofline', or one of {known}")


def linear_step_model(key: LinearKey) -> LinearStepModel | TiledStepModel:
    """The committed linear model of ``key``, in the form of its entry (see the head of linear.yaml)."""
    entry = linear_entry(key)
    about: dict[str, Any] = {
        "limits": StepLimits(**entry["limits"]),
        "measured": StepLimits(**entry["measured"]),
        "source": f"linear: {entry['source']}",
        "error_band": _error_band(entry),
        "includes_overhead": entry.get("includes_overhead", False),
        "labels": tuple(entry.get("labels", ())),
    }
    if "dense" in entry:
        return _with_errors(_tiled(entry, about), key, catalogue_errors(entry))
    decode, prefill = entry["decode"], entry["prefill"]
    coefficients = LinearCoefficients(
        decode_s=float(decode["intercept_s"]),
        decode_per_sequence_s=float(decode["per_sequence_s"]),
        decode_per_context_token_s=float(decode["per_context_token_s"]) * float(entry["kv_bytes_ratio"]),
        prefill_s=float(prefill["intercept_s"]),
        prefill_per_token_s=float(prefill["per_token_s"]),
        prefill_per_square_token_s=float(prefill["per_square_token_s"]),
    )
    return LinearStepModel(coefficients=coefficients, **about, errors=catalogue_errors(entry))


def linear_experts(key: LinearKey) -> SharedExperts:
    """Lines of the experts of ``key``, and the exchange of engines that share them; HardwareError if none."""
    entry = linear_entry(key)
    ways = tuple(ExpertLines(**lines) for lines in entry.get("experts", ()))
    exchange = tuple(_exchange(**one) for one in entry.get("exchange", ()))
    band = entry.get("experts_band", "")
    return SharedExperts(
        gpu=key.gpu,
        ways=ways,
        exchange=exchange,
        holder="hwmodels/catalogue/linear_composed.yaml",
        error_band=band,
    )


def _exchange(ranks: int, last_tokens: int, stretches: Sequence[Sequence[float]], source: str) -> Exchange:
    """Both sides of the start of a stretch are points, so that a jump stays a jump."""
    times = StepAllReduce(tuple(Stretch(int(first), start, rate) for first, start, rate in stretches))
    starts = (int(first) - before for first, _, _ in stretches for before in (0, 1))
    tokens = sorted({1, last_tokens, *(at for at in starts if 1 <= at <= last_tokens)})
    return Exchange(ranks, Curve(tuple(tokens), tuple(map(times.seconds, tokens))), source)


def _with_errors(model: TiledStepModel, key: LinearKey, errors: StepErrors) -> TiledStepModel:
    """Add the errors of labelled all-reduces, which are inside the dense lines."""
    if model.labels:
        step = load_all_reduce(key.gpu).of_step(load_llm(key.llm), key.tp)
        largest = model.limits.max_prefill_tokens, model.limits.max_decode_sequences
        dense = model.dense
        errors = errors.beside(
            all_reduce_errors(model.labels, step.seconds, lambda n: dense.seconds(n, 1), largest)
        )
    return replace(model, errors=errors)


def _tiled(entry: Mapping[str, Any], about: Mapping[str, Any]) -> TiledStepModel:
    prefill = ChunkLine(**entry["prefill_attention"])
    mixed = entry.get("mixed_attention")
    return TiledStepModel(
        dense=DenseLines(**entry["dense"]),
        decode=DecodeLine(**entry["decode_attention"]),
        prefill=prefill,
        mixed=None if mixed is None else MixedAttention(chunk=prefill, **mixed),
        **about,
    )


def _error_band(entry: Mapping[str, Any]) -> str:
    measured = StepLimits(**entry["measured"])
    grid = (
        f"seen up to {measured.max_decode_sequences} sequences, {measured.max_context_tokens} total context, "
        f"{measured.max_prefill_tokens} prefill tokens, {measured.prompt_tokens} tokens per prompt; "
        f"beyond it: {entry['beyond']}"
    )
    errors = entry.get("errors_percent")
    if errors is None:
        return f"{ROUGH_ERROR_BAND}; {grid}"
    unseen = "unseen grid lines" if "dense" in entry else "unseen batch sizes"
    phases = "; ".join(
        f"{phase} {error['mean']:.1f} % mean, {error['p95']:.1f} % p95 "
        f"({unseen} {error['held_out_mean']:.1f} / {error['held_out_p95']:.1f} %)"
        for phase, error in errors.items()
    )
    mixed = "" if "mixed" in errors else "mixed steps not measured; "
    overhead = "inside" if entry.get("includes_overhead", False) else "apart"
    return f"{phases}; {mixed}engine overhead {overhead}; {grid}"


@cache
def _written() -> Mapping[LinearKey, str]:
    """The text of every entry: a run parses one of them, and parsing all takes as long as a short run."""
    texts = (catalogue_text(name) for name in (LINEAR_FILE, LINEAR_COMPOSED_FILE))
    entries = [entry for text in texts for entry in _ENTRY.finditer(text)]
    return {LinearKey(entry["gpu"], entry["llm"], int(entry["tp"])): entry[0] for entry in entries}
