"""What a configuration has for a key as the user writes it."""

from dataclasses import asdict
from typing import Any

from experiments.config.config import RunConfig
from experiments.config.options import option_groups


def value_of(config: RunConfig, key: str) -> Any:
    """Of ``engine.max_num_seqs`` the number, of ``system.scaler.up`` the parameter's value, of a group of
    options such as ``system/dispatch`` the option's name. KeyError for a key that this run has not.
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
