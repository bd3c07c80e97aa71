"""The option files: the groups and options, and the content of an option's file."""

import os
import typing
from pathlib import Path
from typing import Any

from hwmodels.yaml_text import yaml_data
from serving.vocabulary.errors import UserError

SWEEPS = "sweep"  # a folder of complete commands beside the groups
CONF_DIR: Path = Path(__file__).resolve().parents[2] / "experiments" / "conf"
# Folders of the user's own option files, separated as in PATH; --config-dir adds one.
FOLDERS_VARIABLE = "SERVETWIN_OPTIONS"


def option_groups() -> dict[str, list[str]]:
    """Map group (``system/dispatch``) to option names: files in ``experiments/conf/``, and every trace.

    Options in the user's folders follow. UserError for a folder that cannot be used.
    """
    from servetwin.config.trace_options import trace_names

    groups: dict[str, list[str]] = {}
    for group, option in _files_in(CONF_DIR):
        if group != SWEEPS:
            groups.setdefault(group, []).append(option)
    for folder in own_folders():
        _add_own(groups, folder)
    return groups | {"trace": trace_names()}


def own_folders() -> tuple[Path, ...]:
    """Return the user's folders of option files."""
    names = filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))
    return tuple(dict.fromkeys(Path(name).expanduser().resolve() for name in names))


def _files_in(folder: Path) -> list[tuple[str, str]]:
    """Return (group, option) of every YAML file in a group's folder, sorted."""
    files = sorted(
        [*Path(place).relative_to(folder).parts, file]
        for place, _, files in os.walk(folder)
        for file in files
        if file.endswith(".yaml")
    )
    return [("/".join(parents), file.removesuffix(".yaml")) for *parents, file in files if parents]


def _add_own(groups: dict[str, list[str]], folder: Path) -> None:
    """Add the options of a user's folder; UserError for a folder without any, and for a taken name."""
    found = _files_in(folder)
    if not found:
        raise UserError(
            f"{folder} has no option files: write files such as {folder / 'cluster' / 'NAME.yaml'} for "
            "cluster=NAME"
        )
    for group, option in found:
        file = folder / group / f"{option}.yaml"
        if group == "trace":
            raise UserError(f"{file}: a trace is no option file; write trace=file trace.path=FILE")
        if group not in groups:
            raise UserError(f"{file} is in no group of options: write it into one of {', '.join(groups)}")
        if option in groups[group]:
            raise UserError(f"{file} has the name of another {group}={option}: write another name")
        groups[group].append(option)


def path_of_option(group: str, option: str) -> Path:
    """Return the option's file; that of this package if there is none, which does not exist."""
    name = f"{option}.yaml"
    own = (folder / group / name for folder in own_folders() if (folder / group / name).is_file())
    first = CONF_DIR / group / name
    return first if first.is_file() else next(own, first)


def option_file(group: str, option: str) -> dict[str, Any]:
    """Return the content of an option's file, references unresolved."""
    text = path_of_option(group, option).read_text(encoding="utf-8")
    return typing.cast(dict[str, Any], yaml_data(text))


def misfit(error: Exception) -> UserError:
    """Return the error for option files that cannot be merged or read."""
    reason = " ".join(str(error).split())
    folders = " and ".join(map(str, (CONF_DIR, *own_folders())))
    return UserError(
        f"the option files in {folders} do not fit together ({reason}): write them like their neighbours"
    )
