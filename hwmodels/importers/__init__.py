"""Importers: published tables of measured times become profiles. One module per format."""

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator import import_aiconfigurator
from hwmodels.importers.llmservingsim import import_llmservingsim
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.splitwise import read_splitwise
from hwmodels.importers.vidur import import_vidur
from hwmodels.profile import Profile

__all__ = ["IMPORTERS", "ImportRequest", "import_profile", "read_splitwise"]

Importer = Callable[[ImportRequest], Profile]

IMPORTERS: Final[Mapping[str, Importer]] = MappingProxyType(
    {
        "aiconfigurator": import_aiconfigurator,
        "llmservingsim": import_llmservingsim,
        "vidur": import_vidur,
    }
)


def import_profile(format_name: str, request: ImportRequest) -> Profile:
    """The profile that ``request`` names, out of files of this format; HardwareError when there is none."""
    if format_name == "splitwise":
        raise HardwareError(
            f"{request.path} holds whole iterations, and a profile holds operations: its linear coefficients "
            "are in the catalogue, so write kind 'linear' for that model, or import another format"
        )
    if format_name not in IMPORTERS:
        near = difflib.get_close_matches(format_name.lower(), IMPORTERS, n=1, cutoff=0.0)[0]
        raise HardwareError(
            f"unknown profile format {format_name!r}; write {near!r} or another of {', '.join(IMPORTERS)}"
        )
    return IMPORTERS[format_name](request)
