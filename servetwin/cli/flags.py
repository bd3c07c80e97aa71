"""Flags of all commands: --json, -q and -v, parsed before the other words."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Final

_QUIET: Final = ("-q", "--quiet")
_LOUD: Final = ("-v", "--verbose")
# Flags that become words, for the commands that know them.
_AS_WORDS: Final = {"--json": "json=true", "--ranges": "ranges=true"}
OWN_FLAGS: Final = (*_AS_WORDS, *_QUIET, *_LOUD)
TRACEBACK_VARIABLE: Final = "SERVETWIN_TRACEBACK"


def flags_behind(words: Sequence[str]) -> list[str]:
    """Return the words with flags that stand before the command behind it: ``--json story DIR``."""
    first = next((at for at, word in enumerate(words) if word not in OWN_FLAGS), 0)
    return [*words[first:], *words[:first]]


def without_flags(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words with --json as ``json=true`` and alike, and whether to suppress output."""
    quiet = any(word in _QUIET for word in words)
    if any(word in _LOUD for word in words):
        os.environ[TRACEBACK_VARIABLE] = "1"
    rest = [word for word in words if word not in OWN_FLAGS]
    return [*rest, *(word for flag, word in _AS_WORDS.items() if flag in words)], quiet


def asked_for_json(words: Sequence[str]) -> tuple[list[str], bool]:
    """Split json=true from the words of a command whose other words are keys of a run."""
    rest = [word for word in words if word not in ("json=true", "json=false")]
    return rest, "json=true" in words


def asked_for_ranges(words: Sequence[str]) -> tuple[list[str], bool]:
    """Split ranges=true from the words: print both ends of every number's range."""
    rest = [word for word in words if word not in ("ranges=true", "ranges=false")]
    return rest, "ranges=true" in words


@contextmanager
def printing(quiet: bool) -> Iterator[None]:
    """Suppress standard output if quiet; errors are still printed."""
    if not quiet or sys.stdout is None:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123
        yield
