"""Entries of the catalogue that hold from a version of an engine on."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_LEADING: Final = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)", re.ASCII)


def entries_up_to(entries: Sequence[Mapping[str, Any]], version: str | None) -> list[Mapping[str, Any]]:
    """The entries that begin (``from``) at ``version`` or before; all if it is None or no number."""
    wanted = _numbers(version)
    return [entry for entry in entries if wanted is None or (_numbers(entry["from"]) or ()) <= wanted]


def _numbers(version: str | None) -> tuple[int, ...] | None:
    """0.19.0 of v0.19.0, and 0.15.1 of 0.15.1rc1; None: no number."""
    found = _LEADING.match(version or "")
    return tuple(int(part) for part in found[1].split(".")) if found else None
