"""Where the trace files lie. Nothing is fetched here: the files belong to their publishers."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traces.errors import TraceError
from traces.fetching.sources import SOURCES
from traces.synthetic.registry import SYNTHETIC

FOLDERS_VARIABLE: Final = "SERVETWIN_TRACES"
PROFILES_VARIABLE: Final = "SERVETWIN_PROFILES"
FILE: Final = "file"
"""The name of a trace that is nothing but a path."""
FILE_NAMES: Final = {name: source.file_name for name, source in SOURCES.items()}
SYNTHETIC_NAMES: Final = tuple(SYNTHETIC)
_LOCAL_FOLDERS: Final = ("data", "data/traces")


@dataclass(frozen=True, slots=True)
class FoundTrace:
    """A trace file that exists, under the name the user calls it by."""

    name: str
    path: Path


def find_trace(
    name: str,
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    current_folder: Path = Path(),
) -> FoundTrace:
    """The file of the trace ``name``: ``path`` if given, else the first hit in the folders.

    Folders: each of $SERVETWIN_TRACES (separated as in $PATH), $SERVETWIN_PROFILES/llmservingsim, then data/
    and data/traces/ of the current folder; .csv before .csv.gz. Raises TraceError on an unknown name or when
    nothing is found.
    """
    if name not in FILE_NAMES and name != FILE:
        known = ", ".join((*FILE_NAMES, FILE, *SYNTHETIC_NAMES))
        raise TraceError(f"trace={name} is unknown: write one of {known}")
    if path is not None:
        explicit = _expanded(path, "trace.path")
        if not os.path.lexists(explicit):
            raise TraceError(
                f"trace.path={path} does not exist: check the path"
                + ("" if name == FILE else f", or leave it out to search for {name}")
            )
        return FoundTrace(name, explicit)
    if name == FILE:
        raise TraceError("trace=file has no file: write trace.path=FILE")
    folders = trace_folders(environ, current_folder)
    for folder in folders:
        for suffix in ("", ".gz"):
            candidate = folder / (FILE_NAMES[name] + suffix)
            if candidate.is_file():
                return FoundTrace(name, candidate)
    looked = ", ".join(str(folder) + ("" if folder.is_dir() else " (no such folder)") for folder in folders)
    like = f"{name}_like" if f"{name}_like" in SYNTHETIC else "azure_conv_like"
    fetch = f"run servetwin traces fetch {name}, " if SOURCES[name].sha256 else ""
    raise TraceError(
        f"{FILE_NAMES[name]}(.gz) was not found in {looked}: {fetch}set {FOLDERS_VARIABLE} to its folder, put"
        f" the file into data/, write trace.path=FILE, or use trace={like}, which needs no file"
    )


def trace_folders(environ: Mapping[str, str], current_folder: Path) -> tuple[Path, ...]:
    """The folders searched, in order."""
    named = [part for part in environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if part.strip()]
    own = tuple(_expanded(part, FOLDERS_VARIABLE) for part in named)
    # The workloads of LLMServingSim lie beside its tables.
    profiles = environ.get(PROFILES_VARIABLE, "").strip()
    if profiles:
        own += (_expanded(profiles, PROFILES_VARIABLE) / "llmservingsim",)
    return own + tuple(current_folder / part for part in _LOCAL_FOLDERS)


def _expanded(path: str | os.PathLike[str], key: str) -> Path:
    """``path`` with a leading ~ followed."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise TraceError(f"{key}={path} names an unknown home folder: write the whole path") from error
