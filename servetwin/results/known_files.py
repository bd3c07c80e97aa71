"""The list of files that a run wrote into its result folder, so that overwriting removes nothing else."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from servetwin.config.read_file import text_in
from serving.record.json_text import json_data

MARKER: Final = ".servetwin-result"


@dataclass(frozen=True, slots=True)
class Marker:
    """The list of a result folder's files, kept in the folder.

    ``name``: the folder's intended name. ``sizes``: bytes by relative file name; None in a list of an earlier
    version, which had names only.
    """

    name: str | None
    sizes: dict[str, int | None]


def write_marker(folder: Path, name: str) -> None:
    """Write the list of files in the folder that will be called ``name``."""
    sizes = {file: (folder / file).lstat().st_size for file in _entries(folder)}
    text = json.dumps({"name": name, "files": sizes}, indent=1)  # ASCII, even if file names are not
    (folder / MARKER).write_text(text + "\n", encoding="ascii")


def read_marker(folder: Path) -> Marker | None:
    """Return the folder's list; None if it is missing or unreadable."""
    file = folder / MARKER
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            return None
        text = text_in(file, "surrogateescape")
    except (OSError, HardwareError):
        return None
    if not text.startswith("{"):
        return Marker(None, dict.fromkeys(text.splitlines()))
    try:
        data = json_data(text)
        sizes = {str(name): int(size) for name, size in data["files"].items()}
        name = str(data["name"])
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError):
        return None
    plain = name == Path(name).name and name not in ("", "..") and "\0" not in name
    return Marker(name if plain else None, {**sizes})


def foreign(folder: Path) -> list[str] | None:
    """Return files that the run did not write or that have changed; None if the folder has no list."""
    marker = read_marker(folder)
    if marker is None:
        return None
    return [name for name in _entries(folder) if name != MARKER and not _is_known(folder, name, marker)]


def remove_known(folder: Path) -> bool:
    """Delete the run's files, and folders that are then empty; return True if everything is gone.

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
            with suppress(OSError):  # the folder is not empty
                Path(base).rmdir()
    if [place.name for place in folder.iterdir()] != [MARKER]:
        return False
    (folder / MARKER).unlink()  # last, so that an interrupted removal can be repeated
    folder.rmdir()
    return True


def _is_known(folder: Path, name: str, marker: Marker) -> bool:
    """Return whether it is the file that the run wrote, judged by its type and size."""
    if name not in marker.sizes:
        return False
    status, size = (folder / name).lstat(), marker.sizes[name]
    return stat.S_ISREG(status.st_mode) and size in (None, status.st_size)


def _entries(folder: Path) -> list[str]:
    """Return relative names of all files, symbolic links (not followed) and empty folders, sorted."""
    return sorted(Path(path).relative_to(folder).as_posix() for path in _leaves(folder))


def _leaves(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        inner = None
        if entry.is_dir(follow_symlinks=False):
            with suppress(PermissionError):  # its content is unknown, so list the folder itself
                inner = list(_leaves(Path(entry.path)))
        yield from inner or [entry.path]
