"""One entry of hwmodels/catalogue/linear.yaml out of a profile: coefficients and errors as text."""

from dataclasses import asdict, fields
from typing import Any

from hwmodels.profiles.profile import Profile
from hwmodels.step_times.held_out import PhaseError, held_out_errors, seen_errors
from hwmodels.step_times.linear_fit import fit_linear, linear_model
from hwmodels.step_times.step_time import StepLimits

_WIDTH = 116


def coefficient_lines(profile: Profile) -> list[str]:
    """The lines fitted to ``profile``, one key per kind of operation."""
    fit = fit_linear(profile)
    parts: dict[str, Any] = {
        "dense": fit.dense, "decode_attention": fit.decode, "prefill_attention": fit.prefill,
    }  # fmt: skip
    if fit.mixed is not None:
        parts["mixed_attention"] = fit.mixed
    found = []
    for name, part in parts.items():
        numbers = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "chunk"}
        found += _mapping(name, {key: number(value) for key, value in numbers.items()})
    return found


def limit_lines(name: str, limits: StepLimits) -> list[str]:
    """``measured`` or ``limits`` of an entry."""
    numbers = {key: str(value) for key, value in asdict(limits).items() if key != "shared"}
    return _mapping(name, numbers)


def error_lines(profile: Profile) -> list[str]:
    """Errors by phase: of the fit on its own points, and of one that did not see every second line."""
    unseen = {error.phase: error for error in held_out_errors(profile, linear_model)}
    lines = ["  errors_percent:"]
    for seen in seen_errors(profile, linear_model):
        lines.append(f"    {seen.phase}: {{{_percents(seen, unseen[seen.phase])}}}")
    return lines


def _percents(seen: PhaseError, unseen: PhaseError) -> str:
    return (
        f"mean: {seen.mean_percent:.2f}, p95: {seen.p95_percent:.2f}, "
        f"held_out_mean: {unseen.mean_percent:.2f}, held_out_p95: {unseen.p95_percent:.2f}"
    )


def _mapping(name: str, values: dict[str, str]) -> list[str]:
    """``name: {key: value, ...}`` indented by two, in lines that are not too long."""
    return [f"  {name}:", *mapping_lines(values)]


def mapping_lines(values: dict[str, str]) -> list[str]:
    """``{key: value, ...}`` indented by four, in lines that are not too long."""
    words = [f"{key}: {value}" for key, value in values.items()]
    lines, line = [], "    {"
    for at, word in enumerate(words):
        piece = word + ("}" if at == len(words) - 1 else ",")
        if len(line) + 1 + len(piece) > _WIDTH:
            lines.append(line)
            line = "    "
        line += piece if line.endswith(("{", "    ")) else f" {piece}"
    return [*lines, line]


def number(value: float) -> str:
    """Six digits of a coefficient; whole numbers as they are."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.5e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0.0"
