"""Atomic writing of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traces.errors import TraceError


@contextmanager
def replacing(path: Path, overwrite: bool) -> Iterator[Path]:
    """A new path beside ``path`` to write to: renamed to it at the end, removed when the block fails.

    The file is never visible in part. Raises TraceError when the file exists and ``overwrite`` is False, or
    when it cannot be written.
    """
    if path.exists() and not overwrite:
        raise TraceError(f"{path} exists: write another name, or overwrite=true to replace it")
    half = path.with_name(f".{path.name}.{os.getpid()}.half") if path.name else path
    try:
        try:
            yield half
            with half.open("rb") as written:
                os.fsync(written.fileno())  # else a crash could leave the name without the bytes
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise TraceError(
            f"{str(path)!r} cannot be written ({reason}): name a file in a writable folder"
        ) from error
