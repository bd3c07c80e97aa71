"""Importers: published tables of measured times become profiles. One module per format."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator import import_aiconfigurator
from hwmodels.importers.llmservingsim import import_llmservingsim
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.vidur import import_vidur
from hwmodels.profiles.profile import NOT_JUDGED, Profile
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.noise import steadied
from hwmodels.step_times.step_error import judged_text

__all__ = ["IMPORTERS", "ImportRequest", "import_profile"]

Importer = Callable[[ImportRequest], Profile]

IMPORTERS: Final[Mapping[str, Importer]] = MappingProxyType(
    {
        "aiconfigurator": import_aiconfigurator,
        "llmservingsim": import_llmservingsim,
        "vidur": import_vidur,
    }
)


def import_profile(format_name: str, request: ImportRequest) -> Profile:
    """The profile that ``request`` names, from files of this format; HardwareError if there is none."""
    if format_name == "splitwise":
        raise HardwareError(
            f"{request.path} holds whole iterations, which cannot be imported as operations; its linear "
            "coefficients are in the catalogue: write kind 'linear' for that model, or import another format"
        )
    if format_name not in IMPORTERS:
        near = difflib.get_close_matches(format_name.lower(), IMPORTERS, n=1, cutoff=0.0)[0]
        raise HardwareError(
            f"unknown profile format {format_name!r}; write {near!r} or another of {', '.join(IMPORTERS)}"
        )
    profile = steadied(IMPORTERS[format_name](request))
    return replace(profile, stamp=replace(profile.stamp, error_band=_error_band(profile)))


def _error_band(profile: Profile) -> str:
    """Errors on held-out grid lines; a grid with too few lines is not evaluated."""
    try:
        phases = held_out_errors(profile)
    except HardwareError:
        return NOT_JUDGED
    errors = judged_text(
        (phase.phase, phase.mean_percent, phase.p95_percent) for phase in phases if phase.rows
    )
    if not errors:
        return NOT_JUDGED
    return f"mean / p95 on held-out grid lines: {errors}; a sum of operations, engine overhead apart"
