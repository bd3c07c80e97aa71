"""Which files a run put into its result folder, so that overwriting removes nothing else."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKER: Final = ".servetwin-result"


@dataclass(frozen=True, slots=True)
class Marker:
    """What a result folder says of itself.

    ``name``: what the folder was to be called. ``sizes``: bytes by relative name of a file; None of a file of
    an earlier version, which listed names alone.
    """

    name: str | None
    sizes: dict[str, int | None]


def write_marker(folder: Path, name: str) -> None:
    """List what is in the folder that will be called ``name``."""
    sizes = {file: (folder / file).lstat().st_size for file in _entries(folder)}
    text = json.dumps({"name": name, "files": sizes}, indent=1)  # ASCII, whatever characters names have
    (folder / MARKER).write_text(text + "\n", encoding="ascii")


def read_marker(folder: Path) -> Marker | None:
    """None when there is none, or nothing can be made of it."""
    file = folder / MARKER
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            return None
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    if not text.startswith("{"):
        return Marker(None, dict.fromkeys(text.splitlines()))
    try:
        found = json.loads(text)
        sizes = {str(name): int(size) for name, size in found["files"].items()}
        name = str(found["name"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    plain = name == Path(name).name and name not in ("", "..") and "\0" not in name
    return Marker(name if plain else None, {**sizes})


def foreign(folder: Path) -> list[str] | None:
    """What the run did not write, or what changed since; None when the folder has no marker."""
    marker = read_marker(folder)
    if marker is None:
        return None
    return [name for name in _entries(folder) if name != MARKER and not _is_known(folder, name, marker)]


def remove_known(folder: Path) -> bool:
    """Delete what the run wrote, and the folders that held nothing else; True when all is gone.

    No symbolic link is followed.
    """
    marker = read_marker(folder)
    if marker is None:
        return False
    for name in _entries(folder):
        if _is_known(folder, name, marker):
            (folder / name).unlink()
    for base, _, _ in os.walk(folder, topdown=False):
        if base != str(folder):
            with suppress(OSError):  # something is left in it
                Path(base).rmdir()
    if [place.name for place in folder.iterdir()] != [MARKER]:
        return False
    (folder / MARKER).unlink()  # last, so that a removal that was cut can be taken up again
    folder.rmdir()
    return True


def _is_known(folder: Path, name: str, marker: Marker) -> bool:
    """Whether it is the file that was written, as far as its kind and its size tell."""
    if name not in marker.sizes:
        return False
    found, size = (folder / name).lstat(), marker.sizes[name]
    return stat.S_ISREG(found.st_mode) and size in (None, found.st_size)


def _entries(folder: Path) -> list[str]:
    """Relative names of all files, of links (not of what they lead to) and of empty folders, sorted."""
    return sorted(Path(path).relative_to(folder).as_posix() for path in _leaves(folder))


def _leaves(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        inner = None
        if entry.is_dir(follow_symlinks=False):
            with suppress(PermissionError):  # what is in it cannot be known, so it stands for itself
                inner = list(_leaves(Path(entry.path)))
        yield from inner or [entry.path]
