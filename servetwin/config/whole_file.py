"""Writes a file completely or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.vocabulary.errors import UserError


def check_free(key: str, path: Path, overwrite: bool) -> None:
    """Raise UserError if an existing file would be overwritten."""
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{key}={path} exists: write another path, or overwrite=true to replace it")


@contextmanager
def whole_file(key: str, path: Path) -> Iterator[Path]:
    """Yield a new path beside ``path``, the user's ``key=``, to write to.

    It is renamed to ``path`` at the end, and removed if the block fails. UserError if it cannot be written.
    """
    if not path.name:
        raise UserError(f"{key}={path} is a folder: write the path of a file")
    half = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        try:
            yield half
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{key}={path} cannot be written ({error.strerror}): write another path") from error


def write_whole(key: str, path: Path, text: str) -> None:
    """Write ``text`` to ``path``, the user's ``key=``. Raises UserError if it cannot be written."""
    with whole_file(key, path) as half:
        half.write_text(text, encoding="utf-8", errors="backslashreplace")
