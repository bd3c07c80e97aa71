"""The option files: which groups and options there are, and what the file of an option says."""

import typing
from pathlib import Path
from typing import Any

from experiments.trace_options import trace_names
from hwmodels.yaml_text import yaml_data

CONF_DIR: Path = Path(__file__).resolve().parent / "conf"


def option_groups() -> dict[str, list[str]]:
    """Group (such as ``system/dispatch``) -> its option names: the files in ``conf/``, and every trace."""
    groups: dict[str, list[str]] = {}
    for file in sorted(CONF_DIR.glob("*/**/*.yaml")):
        groups.setdefault(file.parent.relative_to(CONF_DIR).as_posix(), []).append(file.stem)
    return groups | {"trace": trace_names()}


def option_file(group: str, option: str) -> dict[str, Any]:
    """What the file of an option says, references unresolved."""
    text = (CONF_DIR / group / f"{option}.yaml").read_text(encoding="utf-8")
    return typing.cast(dict[str, Any], yaml_data(text))
