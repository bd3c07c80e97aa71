"""The list in ``--help``: every option and every key, with the defaults of the option files."""

from typing import Any

from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names
from servetwin.config.compose.compose import defaults
from servetwin.config.compose.key_text import shown
from servetwin.config.config import Kind
from servetwin.config.key import declared_keys
from servetwin.config.models_config import ModelsConfig
from servetwin.config.options import option_file, option_groups
from servetwin.config.policy.installed import installed_names
from servetwin.config.trace_options import default_parameters, trace_names
from traces.find import FILE


def key_list(kind: Kind) -> str:
    """Return text for a terminal, 80 columns if the names allow it."""
    groups = option_groups()
    if kind == "simulate":
        families = [f"{family}_xN" for family in CLUSTER_FAMILIES]
        groups["cluster"] += [*families, *topology_names(), "NAME_HxG (hosts x GPUs)"]
    else:
        groups |= {"cluster": ["local"]}
    lines = ["Options:"]
    lines += [f"  {group + '=':<18} {' | '.join(options)}" for group, options in groups.items()]
    lines += ["", "Values, with their defaults:"]
    for key, (default, wanted) in defaults(kind).items():
        if (not key.startswith("system.") or key.startswith("system.instances.")) and key != "out":
            lines.append(f"  {key + '=' + shown(default):<48} {wanted}")
    lines += ["", "config=DIR begins with the configuration of an earlier run, its out= folder, instead"]
    lines += ["", "A policy's own parameters follow its group: system.admission.rate_per_s=2"]
    lines += _policy_parameters()
    lines += [
        "",
        "A class of yours, here MyPolicy of my_policies.py in this folder, and its parameters:",
        "  system/dispatch=my_policies:MyPolicy system.dispatch.NAME=VALUE",
    ]
    if names := installed_names():
        lines.append(f"  installed policies: {', '.join(names)}")
    lines += ["", "Many models have defaults of their own: models=zipf", *_model_parameters()]
    lines += ["", "A trace's own parameters follow trace: trace=gamma trace.gap_cv=8"]
    return "\n".join([*lines, *_trace_parameters(), ""])


def _trace_parameters() -> list[str]:
    """Return one line per set of parameters, with the traces that take it."""
    takers: dict[str, list[str]] = {}
    for name in trace_names():
        given = default_parameters(name).items()
        if given and name != FILE:
            takers.setdefault(" ".join(f"{key}={shown(value)}" for key, value in given), []).append(name)
    return [f"  {', '.join(names)}: {parameters}" for parameters, names in takers.items()]


def _policy_parameters() -> list[str]:
    """Return one line per set of parameters of a group, with the options that take it."""
    takers: dict[tuple[str, str], list[str]] = {}
    for group, options in option_groups().items():
        for option in options if group.startswith("system/") else ():
            if text := _assignments(option_file(group, option).get("params") or {}):
                takers.setdefault((group, text), []).append(option)
    return [f"  {group}={'|'.join(names)}: {text}" for (group, text), names in takers.items()]


def _model_parameters() -> list[str]:
    """Return the keys that options with many models set, without those that they do not use."""
    lines = []
    for name in option_groups()["models"]:
        file = option_file("models", name)
        given = {
            path: file.get(path, key.default)
            for path, key in declared_keys(ModelsConfig).items()
            if name in key.key.options
        }
        lines += [f"  models={name}: {_assignments(given)}"] if given else []
    return lines


def _assignments(values: dict[str, Any]) -> str:
    """Return ``key=value`` of all that may be set, without references (as of batchers' parameters)."""
    literal_values = {key: value for key, value in values.items() if "${" not in str(value)}
    return " ".join(f"{key}={shown(value)}" for key, value in literal_values.items())
