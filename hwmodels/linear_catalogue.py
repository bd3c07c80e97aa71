"""Linear coefficients from the catalogue: which exist, and the step model they make."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hwmodels.catalogue import LINEAR_FILE, read_yaml
from hwmodels.errors import HardwareError
from hwmodels.linear_step import LinearCoefficients, LinearStepModel
from hwmodels.step_time import StepLimits

ROUGH_ERROR_BAND = "rough declaration, error unknown: may be off by a factor of 2"


class LinearKey(NamedTuple):
    """What a set of coefficients holds for."""

    gpu: str
    llm: str
    tp: int

    def __str__(self) -> str:
        return f"{self.llm} on {self.gpu} tp={self.tp}"


def linear_keys() -> tuple[LinearKey, ...]:
    """Every (GPU, model, tp) with coefficients, sorted."""
    return tuple(sorted(_key(entry) for entry in _entries()))


def linear_entry(key: LinearKey) -> Mapping[str, Any]:
    """The catalogue entry of ``key`` as it stands in linear.yaml."""
    for entry in _entries():
        if _key(entry) == key:
            return entry
    known = "; ".join(str(known) for known in linear_keys())
    raise HardwareError(f"no linear step coefficients for {key}: write kind 'roofline', or one of {known}")


def fitted_coefficients(entry: Mapping[str, Any], phase: str) -> tuple[float, float, float]:
    """Seconds: intercept, per sequence or token, per context or squared token; before ``kv_bytes_ratio``."""
    intercept, per_count, per_work = (float(value) for value in entry[phase].values())
    return intercept, per_count, per_work


def linear_step_model(key: LinearKey, overhead_s: float) -> LinearStepModel:
    """The committed linear model of ``key`` with ``overhead_s`` added to every step."""
    entry = linear_entry(key)
    decode, prefill = entry["decode"], entry["prefill"]
    coefficients = LinearCoefficients(
        decode_s=float(decode["intercept_s"]),
        decode_per_sequence_s=float(decode["per_sequence_s"]),
        decode_per_context_token_s=float(decode["per_context_token_s"]) * float(entry["kv_bytes_ratio"]),
        prefill_s=float(prefill["intercept_s"]),
        prefill_per_token_s=float(prefill["per_token_s"]),
        prefill_per_square_token_s=float(prefill["per_square_token_s"]),
    )
    return LinearStepModel(
        coefficients=coefficients,
        overhead_s=overhead_s,
        limits=StepLimits(**entry["limits"]),
        measured=StepLimits(**entry["measured"]),
        source=f"linear: {entry['source']}",
        error_band=_error_band(entry),
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
    phases = "; ".join(
        f"{phase} {error['mean']:.1f} % mean, {error['p95']:.1f} % p95 "
        f"(unseen batch sizes {error['held_out_mean']:.1f} / {error['held_out_p95']:.1f} %)"
        for phase, error in errors.items()
    )
    return f"{phases}; mixed steps not measured; engine overhead apart; {grid}"


def _key(entry: Mapping[str, Any]) -> LinearKey:
    return LinearKey(entry["gpu"], entry["llm"], entry["tp"])


def _entries() -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = read_yaml(LINEAR_FILE)
    return entries
