"""Converts a resolved configuration to ``config.yaml`` and back, every key present and of its type."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from servetwin.config.compose.checks import check
from servetwin.config.config import RunConfig
from servetwin.config.key import WRITTEN, Key, key_of
from servetwin.config.overrides import checked_value, echo, is_too_long, wanted_by
from servetwin.config.policy.saved import check_policies
from servetwin.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

# Where a saved run's policies were, and are now.
_MOVED: Final = ("experiments.build.", "servetwin.assemble.")
_HEADER = "# The resolved configuration of a ServeTwin run: nothing is left to defaults.\n"


def resolved_yaml(config: RunConfig) -> str:
    """Return ``config.yaml``: every value of the run; ``load_resolved`` reads it to an equal RunConfig."""
    data = _written_values(config)
    # YAML reads some unprintable characters back as others, unless all non-ASCII characters are escaped.
    paths = (config.out, config.trace.path, config.engine.profile, config.model.checkpoint)
    as_it_is = "".join(path or "" for path in paths).isprintable()
    return _HEADER + str(yaml.safe_dump(data, sort_keys=False, allow_unicode=as_it_is, width=1000))


def _written_values(config: Any) -> dict[str, Any]:
    """Return the values by key, without those that are left out at their value."""
    data: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "params":
            data["params"] = dict(value)
            continue
        declared = key_of(field)
        if declared.omit == value and declared.omit is not WRITTEN:
            continue
        if declared.omit_with and declared.omit_with not in data:
            continue
        data[field.name] = _written_values(value) if dataclasses.is_dataclass(value) else value
    return data


def load_resolved(path: Path | str, named: Mapping[str, str] | None = None) -> RunConfig:
    """Return the RunConfig in a result folder's ``config.yaml``; UserError if the file is not one.

    ``named``: the policies that the command line names (``system/dispatch`` -> ``module:Class``); the file
    alone may name only those of this package and installed ones (``saved_policies``).
    """
    config = read_resolved(path)
    check_policies(config.system, named or {}, str(path))
    check(config)
    return config


def read_resolved(path: Path | str) -> RunConfig:
    """Read the file, every key present and of its type, without checking it against anything else."""
    try:
        data = yaml_in(Path(path), aliases=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): give the config.yaml of a result folder"
        ) from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not YAML ({reason}): give the config.yaml of a result folder") from error
    if isinstance(data, dict) and isinstance(data.get("system"), dict):
        for policy in data["system"].values():
            if isinstance(policy, dict) and isinstance(name := policy.get("policy"), str):
                policy["policy"] = name.replace(*_MOVED) if name.startswith(_MOVED[0]) else name
    try:
        config: RunConfig = built(RunConfig, data, "", str(path))
    except UserError as error:
        raise UserError(f"{error}; or use the file with the version of ServeTwin that wrote it") from None
    return config


_hints = functools.cache(typing.get_type_hints)


def built(config_class: type, data: Any, prefix: str, source: str) -> Any:
    """Build ``config_class`` from plain data, every key present and typed; UserError naming the key."""
    hints = _hints(config_class)
    if not isinstance(data, dict):
        where = f"{prefix.rstrip('.')} in {source}" if prefix else source
        raise UserError(f"{where} is not a mapping: write the keys {', '.join(hints)} under it")
    for key in data:
        if key not in hints:
            raise UserError(f"unknown key {prefix}{key} in {source}: write only {', '.join(hints)}")
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    values = {}
    for name, hint in hints.items():
        if name not in data:
            field = fields[name]
            if (
                name != "params"
                and (value := _absent_value(key_of(field), field.default, data)) is not WRITTEN
            ):
                values[name] = value
                continue
            raise UserError(f"{prefix}{name} is missing in {source}: write {prefix}{name} with its value")
        if dataclasses.is_dataclass(hint):
            values[name] = built(typing.cast(type, hint), data[name], f"{prefix}{name}.", source)
        elif name == "params":
            values[name] = _parameters(data[name], f"{prefix}{name}", source)
        else:
            values[name] = checked_value(data[name], wanted_by(hint), f"{prefix}{name}", source)
    return config_class(**values)


def _absent_value(declared: Key, default: Any, data: Mapping[str, Any]) -> Any:
    """Return the value of a key that config.yaml may leave out beside ``data``; WRITTEN if it may not."""
    if declared.omit_with:
        return declared.absent if declared.omit_with in data else default
    return declared.omit


def _parameters(data: Any, key: str, source: str) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise UserError(
            f"{key} in {source} is not a mapping: write a mapping of parameter names to values, or {{}}"
        )
    for name, value in data.items():
        if not all(map(_is_plain, listed(value))):
            raise UserError(
                f"{key}.{echo(name)} in {source} is no plain value: write a number, a word, true, false, "
                "null or a list of these"
            )
    return dict(data)


def _is_plain(value: Any) -> bool:
    return value is None or (type(value) in (int, float, bool, str) and not is_too_long(value))


def listed(value: Any) -> list[Any]:
    """Return the items of a list, or a list of the single value."""
    return value if isinstance(value, list) else [value]
