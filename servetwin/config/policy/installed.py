"""Policies of installed packages: entry points of the group ``servetwin.policies``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS: Final = "servetwin.policies"


def installed_policy(where: str, name: str) -> str | None:
    """Return ``module:Class`` of the installed policy called ``name``; None if there is none.

    Raises UserError if two packages install different policies of that name. Imports nothing.
    """
    paths = {f"{one.module}:{one.attr}": one for one in _entry_points() if one.name == name}
    if len(paths) > 1:
        raise UserError(
            f"{where} is ambiguous: the installed packages have {', '.join(sorted(paths))} under that name; "
            "write one of these instead of the name"
        )
    return next(iter(paths), None)


def installed_names() -> list[str]:
    """Return the names of all installed policies, sorted."""
    return sorted({one.name for one in _entry_points()})


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return [one for one in entry_points(group=ENTRY_POINTS) if one.attr]
