"""Looks up a configuration's value by a key as the user writes it."""

from dataclasses import asdict
from typing import Any

from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups


def value_of(config: RunConfig, key: str) -> Any:
    """Return the number of ``engine.max_num_seqs``, the parameter's value of ``system.scaler.up``, the
    option's name of a group such as ``system/dispatch``. KeyError for a key that this run does not have.
    """
    value: Any = asdict(config)
    for part in key.replace("/", ".").split("."):
        params = value.get("params")
        value = params[part] if part not in value and isinstance(params, dict) else value[part]
    if key in option_groups() and isinstance(value, dict):
        value = value["name"]
    return {True: "true", False: "false", None: "null"}.get(value, value) if _is_word(value) else value


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)
