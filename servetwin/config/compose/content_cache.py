"""Caches values between commands, each under a digest of everything that it depends on.

Folder: ``$SERVETWIN_CACHE``, else ``$XDG_CACHE_HOME/servetwin``, else ``~/.cache/servetwin``. With
``SERVETWIN_CACHE`` empty or ``off`` nothing is cached. A failed read or write only costs time.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FOLDER_VARIABLE: Final = "SERVETWIN_CACHE"
OFF: Final = ("", "off")
MOST_ENTRIES: Final = 256
_ENDING: Final = ".json"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the cache folder; None if caching is off."""
    named = environ.get(FOLDER_VARIABLE)
    if named is not None:
        return None if named in OFF else Path(named)
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    try:
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "servetwin"
    except RuntimeError:  # no home directory
        return None


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Return the SHA-256 of the parts, with boundaries between them."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.hexdigest()


def kept(name: str, make: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    """Return the JSON data cached as ``name`` if undamaged and good, else the result of ``make``.

    ``name`` must change with everything that the value depends on. Errors of ``make`` are not cached, nor are
    values that JSON would change.
    """
    folder = cache_folder()
    if folder is None:
        return make()
    file = folder / (name + _ENDING)
    stored = _read(file)
    if stored is not None and is_good(stored):
        return stored
    value = make()
    with suppress(OSError, TypeError):  # TypeError: values that JSON does not have
        _write(file, value)
    return value


def _read(file: Path) -> Any:
    """Return the value; None if the file is missing or not as it was written."""
    try:
        digest, _, text = file.read_bytes().partition(b"\n")
        return json.loads(text) if digest.decode() == digest_of([text]) else None
    except (OSError, RecursionError, ValueError):
        return None


def _write(file: Path, value: Any) -> None:
    """Write under a temporary name first, so that other processes find a complete file or none."""
    text = json.dumps(value)
    if json.loads(text) != value:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_oldest(file.parent)
    half = file.with_name(f"{file.stem}.{os.urandom(8).hex()}.half")  # process ids are reused
    try:
        half.write_bytes(b"%s\n%s" % (digest_of([text]).encode(), text.encode()))
        half.replace(file)
    except BaseException:
        with suppress(OSError):
            half.unlink()
        raise


def _forget_oldest(folder: Path) -> None:
    """Make room for one more. Temporary files of killed processes become old and are removed too."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries)
    for _, path in files[: max(0, len(files) - MOST_ENTRIES + 1)]:
        with suppress(OSError):  # another process removed it first
            Path(path).unlink()
