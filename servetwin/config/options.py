"""The option files: the groups and options, and the content of an option's file."""

import os
import typing
from pathlib import Path
from typing import Any

from hwmodels.yaml_text import yaml_data
from serving.vocabulary.errors import UserError

SWEEPS = "sweep"  # a folder of complete commands beside the groups
CONF_DIR: Path = Path(__file__).resolve().parents[2] / "experiments" / "conf"


def option_groups() -> dict[str, list[str]]:
    """Map group (``system/dispatch``) to option names: files in ``experiments/conf/``, and every trace."""
    from servetwin.config.trace_options import trace_names

    groups: dict[str, list[str]] = {}
    for *parents, file in sorted(
        [*Path(folder).relative_to(CONF_DIR).parts, file]
        for folder, _, files in os.walk(CONF_DIR)
        for file in files
    ):
        if parents and parents != [SWEEPS] and file.endswith(".yaml"):
            groups.setdefault("/".join(parents), []).append(file.removesuffix(".yaml"))
    return groups | {"trace": trace_names()}


def option_file(group: str, option: str) -> dict[str, Any]:
    """Return the content of an option's file, references unresolved."""
    text = (CONF_DIR / group / f"{option}.yaml").read_text(encoding="utf-8")
    return typing.cast(dict[str, Any], yaml_data(text))


def misfit(error: Exception) -> UserError:
    """Return the error for option files that cannot be merged or read."""
    reason = " ".join(str(error).split())
    return UserError(
        f"the option files in {CONF_DIR} do not fit together ({reason}): write them like their neighbours"
    )
