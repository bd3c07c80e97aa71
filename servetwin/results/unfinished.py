"""Temporary folders that a run makes beside its result folder, and whether that run is still alive.

``.servetwin-unfinished-TOKEN`` holds files until the run is complete; ``.servetwin-replaced-TOKEN`` is an
earlier result that is being replaced. The run's process locks them; the lock ends with the process.
"""

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from servetwin.results.known_files import read_marker, remove_known

try:
    import fcntl
except ImportError:  # Windows has no such locks: folders of crashed runs stay
    fcntl = None  # type: ignore[assignment]

_UNFINISHED: Final = ".servetwin-unfinished-"
_REPLACED: Final = ".servetwin-replaced-"
_TOKEN: Final = re.compile("[0-9a-f]{12}")


def unfinished_name(parent: Path) -> Path:
    """Return an unused name for a temporary folder."""
    return parent / f"{_UNFINISHED}{secrets.token_hex(6)}"


def replaced_name(parent: Path) -> Path:
    """Return an unused name for the earlier result."""
    return parent / f"{_REPLACED}{secrets.token_hex(6)}"


def free_name(target: Path) -> Path:
    """Return ``target.1``, or the next free name."""
    number = 1
    while os.path.lexists(aside := target.parent / f"{target.name}.{number}"):
        number += 1
    return aside


def lock_folder(folder: Path, wait: bool) -> int | None:
    """Lock the folder and return its descriptor, to be closed later.

    None if another process holds the lock (with ``wait`` this call waits for it), if the folder is gone or a
    symbolic link, and if the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def clear(parent: Path) -> None:
    """Clean up after crashed runs in ``parent``: complete results get their name, others are removed."""
    for prefix, finish in ((_UNFINISHED, _finish), (_REPLACED, put_away)):
        for folder in _folders_named(parent, prefix):
            descriptor = lock_folder(folder, wait=False)
            if descriptor is None:
                continue
            try:
                finish(folder)
            except OSError:  # no permission, or already gone
                continue
            finally:
                os.close(descriptor)


def put_away(replaced: Path) -> None:
    """Remove an earlier result. If other files are in it, rename it to a visible name instead."""
    marker = read_marker(replaced)
    if not remove_known(replaced) and marker is not None and marker.name is not None:
        replaced.rename(free_name(replaced.parent / marker.name))


def _finish(unfinished: Path) -> None:
    """Rename a complete folder: the marker is written last, so a run that wrote it lacked only its name."""
    marker = read_marker(unfinished)
    if marker is not None and marker.name is not None:
        target = unfinished.parent / marker.name
        if not os.path.lexists(target):
            unfinished.rename(target)
            return
    shutil.rmtree(unfinished, ignore_errors=True)


def _folders_named(parent: Path, prefix: str) -> list[Path]:
    with suppress(OSError):
        named = sorted(place for place in parent.iterdir() if place.name.startswith(prefix))
        return [place for place in named if _TOKEN.fullmatch(place.name.removeprefix(prefix))]
    return []
