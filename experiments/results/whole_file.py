"""A file that is there whole or not at all."""

from pathlib import Path

from serving.vocabulary.errors import UserError


def write_whole(key: str, path: Path, text: str) -> None:
    """``text`` at ``path``, which the user gave as ``key=``. UserError where it cannot be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{key}={path} cannot be written ({error.strerror}): write another path") from error
