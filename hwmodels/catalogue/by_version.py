"""Entries of the catalogue that hold from a version of an engine on."""

from collections.abc import Mapping, Sequence
from typing import Any


def entries_up_to(entries: Sequence[Mapping[str, Any]], version: str | None) -> list[Mapping[str, Any]]:
    """The entries that begin (``from``) at ``version`` or before; all if it is None or no number."""
    wanted = _numbers(version)
    return [entry for entry in entries if wanted is None or (_numbers(entry["from"]) or ()) <= wanted]


def _numbers(version: str | None) -> tuple[int, ...] | None:
    parts = (version or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None
