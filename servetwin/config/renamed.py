"""Configuration keys renamed since the last version: they are refused with the new name."""

from collections.abc import Mapping
from typing import Any, Final

from servetwin.config.overrides import canonical
from serving.vocabulary.errors import UserError

# Old name -> new name, both in the short form; an entry is removed with the version after next.
RENAMED_KEYS: Final[dict[str, str]] = {
    "system.instances.keep_ms": "system.instances.keep_parameters_ms",
    "system.instances.monitor_ms": "system.instances.monitor_period_ms",
    "system.cache.most_models": "system.cache.max_models",
}


def refuse_renamed(key: str) -> None:
    """Raise UserError for a renamed key of the command line."""
    now = RENAMED_KEYS.get(canonical(key))
    if now is not None:
        raise UserError(f"{key} is now called {now}: write {now}=VALUE")


def refuse_renamed_in(data: Mapping[Any, Any], source: str, prefix: str = "") -> None:
    """Raise UserError for a renamed key of a saved configuration."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        now = RENAMED_KEYS.get(canonical(key))
        if now is not None:
            raise UserError(f"{canonical(key)} in {source} is now called {now}: write {now}")
        if isinstance(value, dict):
            refuse_renamed_in(value, source, f"{key}.")
