"""``engine.overhead=FILE``: reads an engine's overhead per step, as ``servetwin profile fit`` writes it."""

import typing
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

import yaml

from servetwin.config.engine_config import OverheadConfig
from servetwin.config.key import declared_keys
from servetwin.config.overrides import checked_value, echo, wanted_by
from servetwin.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

KEY: Final = "engine.overhead"
_DEFAULTS: Final = {
    name: declared.default
    for name, declared in declared_keys(OverheadConfig).items()
    if declared.default is not MISSING
}


def overhead_file(text: str) -> dict[str, Any]:
    """Return the keys of ``engine.overhead``; ``source`` names the file. UserError naming file and key."""
    path = Path(text)
    data = _read(path)
    hints = typing.get_type_hints(OverheadConfig)
    if unknown := [key for key in data if key not in hints]:
        raise UserError(f"{path} has an unknown key {echo(str(unknown[0]))}: write only {', '.join(hints)}")
    needed = [name for name in hints if name not in _DEFAULTS]
    if missing := [name for name in needed if name not in data]:
        raise UserError(f"{path} lacks the key {missing[0]}: write {', '.join(needed)}")
    values: dict[str, Any] = dict(_DEFAULTS)
    for name, value in data.items():
        values[name] = checked_value(value, wanted_by(hints[name]), name, str(path))
        known = declared_keys(OverheadConfig)[name].key.within
        if known is not None and values[name] is not None and values[name] not in known:
            raise UserError(f"{name} in {path} is {value}: write a number {known}")
    return values | {"source": f"{values['source']} ({path.name})"}


def _read(path: Path) -> dict[str, Any]:
    give = "give the file that servetwin profile fit path=FOLDER against=X printed"
    try:
        data = yaml_in(path)
    except OSError as error:
        raise UserError(f"{KEY}={echo(str(path))} cannot be read ({error.strerror}): {give}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not YAML ({' '.join(str(error).split())[:200]}): {give}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no keys: {give}")
    return data
