"""The parts of a digest of everything that merged options and ``--help`` depend on.

It reads files and versions, and imports none of the modules.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("servetwin", "hwmodels", "policies", "traces")  # schema, parameters, traces, clusters
_ROOT: Final = Path(__file__).resolve().parents[3]
_APART: Final = ("__pycache__", "conf")  # derived from the rest; read separately
# Files with the versions of the packages that merge.
_VERSION_FILES: Final = (("hydra", "__init__.py"), ("omegaconf", "version.py"))


def fingerprint(*folders: Path) -> Iterator[str | bytes]:
    """Yield the option files in ``folders``, the catalogue, code, and versions of Python and the mergers."""
    yield sys.version
    yield from _versions()
    yield from content_in(*folders, *(_ROOT / package for package in _PACKAGES))


def content_in(*folders: Path) -> Iterator[str | bytes]:
    """Yield every file that a merge may read: option files and the catalogue in full.

    For code, the attributes by which Python decides whether its compiled form is current.
    """
    for root in map(str, folders):
        for file in _files(root):
            yield file.path.removeprefix(root)
            with suppress(OSError):  # removed or not readable: a merge cannot read it either
                yield _content_of(file)


def _content_of(file: os.DirEntry[str]) -> str | bytes:
    if file.name.endswith(".yaml"):
        return Path(file.path).read_bytes()
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield all files below ``folder``, sorted by name."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if not entry.is_dir():
            yield entry
        elif entry.name not in _APART:
            yield from _files(entry.path)


def _versions() -> Iterator[bytes]:
    for package, file in _VERSION_FILES:
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).with_name(file).read_bytes()
