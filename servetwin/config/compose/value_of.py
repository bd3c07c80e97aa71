"""Looks up a configuration's value by a key as the user writes it."""

from dataclasses import asdict
from typing import Any

from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups


def value_of(config: RunConfig, key: str) -> Any:
    """Return the number of ``engine.max_num_seqs``, the parameter's value of ``system.scaler.up``, the
    option's name of a group such as ``system/dispatch``. KeyError for a key that this run does not have.
    """
    found: Any = asdict(config)
    for part in key.replace("/", ".").split("."):
        params = found.get("params")
        found = params[part] if part not in found and isinstance(params, dict) else found[part]
    if key in option_groups() and isinstance(found, dict):
        found = found["name"]
    return {True: "true", False: "false", None: "null"}.get(found, found) if _is_word(found) else found


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)
