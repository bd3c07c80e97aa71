"""Flags that all commands share: --json, -q and -v, before they are looked for among the words."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Final

_QUIET: Final = ("-q", "--quiet")
_LOUD: Final = ("-v", "--verbose")
TRACEBACK_VARIABLE: Final = "SERVETWIN_TRACEBACK"


def without_flags(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words with --json as ``json=true``, and whether nothing is to be printed."""
    quiet = any(word in _QUIET for word in words)
    if any(word in _LOUD for word in words):
        os.environ[TRACEBACK_VARIABLE] = "1"
    kept = [word for word in words if word not in (*_QUIET, *_LOUD, "--json")]
    if "--json" in words:
        kept.append("json=true")
    return kept, quiet


def asked_for_json(words: Sequence[str]) -> tuple[list[str], bool]:
    """Of a command whose other words are keys of a run."""
    rest = [word for word in words if word not in ("json=true", "json=false")]
    return rest, "json=true" in words


@contextmanager
def printing(quiet: bool) -> Iterator[None]:
    """Errors are told all the same."""
    if not quiet or sys.stdout is None:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123
        yield
