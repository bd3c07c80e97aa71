"""Writes a file completely or not at all."""

import os
from pathlib import Path

from serving.vocabulary.errors import UserError


def check_free(key: str, path: Path, overwrite: bool) -> None:
    """Raise UserError if an existing file would be overwritten."""
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{key}={path} exists: write another path, or overwrite=true to replace it")


def write_whole(key: str, path: Path, text: str) -> None:
    """Write ``text`` to ``path``, the user's ``key=``. Raises UserError if it cannot be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{key}={path} cannot be written ({error.strerror}): write another path") from error
