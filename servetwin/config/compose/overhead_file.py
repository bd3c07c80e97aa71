"""``engine.overhead=FILE`` and ``engine.front_end=FILE``: the keys of a section of the engine in a file."""

import typing
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

import yaml

from servetwin.config.engine_config import FrontEndConfig, OverheadConfig
from servetwin.config.key import declared_keys
from servetwin.config.overrides import checked_value, echo, wanted_by
from servetwin.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

KEY: Final = "engine.overhead"
FRONT_END_KEY: Final = "engine.front_end"
_OF: Final[dict[str, tuple[type, str]]] = {
    KEY: (OverheadConfig, "the file that servetwin profile fit path=FOLDER against=X printed"),
    FRONT_END_KEY: (FrontEndConfig, "the front_end.yaml that realexec calibrate http://HOST:PORT wrote"),
}


def section_file(key: str, text: str) -> dict[str, Any]:
    """Return the keys of the section; ``source`` names the file. UserError naming file and key."""
    path = Path(text)
    section, give = _OF[key]
    data = _read(key, path, give)
    declared = declared_keys(section)
    hints = typing.get_type_hints(section)
    if unknown := [key for key in data if key not in hints]:
        raise UserError(f"{path} has an unknown key {echo(str(unknown[0]))}: write only {', '.join(hints)}")
    defaults = {name: one.default for name, one in declared.items() if one.default is not MISSING}
    needed = [name for name in hints if name not in defaults]
    if missing := [name for name in needed if name not in data]:
        raise UserError(f"{path} lacks the key {missing[0]}: write {', '.join(needed)}")
    values: dict[str, Any] = dict(defaults)
    for name, value in data.items():
        values[name] = checked_value(value, wanted_by(hints[name]), name, str(path))
        known = declared[name].key.within
        if known is not None and values[name] is not None and values[name] not in known:
            raise UserError(f"{name} in {path} is {value}: write a number {known}")
    return values | {"source": f"{values['source']} ({path.name})"}


def _read(key: str, path: Path, give: str) -> dict[str, Any]:
    try:
        data = yaml_in(path)
    except OSError as error:
        raise UserError(f"{key}={echo(str(path))} cannot be read ({error.strerror}): give {give}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not YAML ({' '.join(str(error).split())[:200]}): give {give}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no keys: give {give}")
    return data
