"""The merged option files of the chosen options: plain data with references and missing values.

Hydra merges. Equal files, choices and versions give equal data, so the merge is cached: importing Hydra and
merging takes about a quarter of a second of CPU (benchmarks/README.md, run_anew).
"""

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from servetwin.config import options
from servetwin.config.compose.clusters import requested_cluster
from servetwin.config.compose.content_cache import digest_of, kept
from servetwin.config.compose.fingerprint import fingerprint
from servetwin.config.config import Kind
from servetwin.config.model_path import is_model_path, model_option
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import Override
from servetwin.config.policy.groups import POLICY_GROUPS, group_of
from servetwin.config.policy.outside import names_outside, outside_option
from servetwin.config.trace_options import trace_names, trace_option

Tree = dict[str, Any]
_DEFAULT_TRACES: Final = ("azure_conv", "azure_conv_like")  # the defaults of simulate.yaml and realexec.yaml
_STAND_IN: Final = "a100_x1"
_FORM: Final = "3"  # of the cached data: change it when the same content must be merged into other data


def option_tree(kind: Kind, choices: Sequence[Override]) -> Tree:
    """Return the merged options. Raises UserError if the files do not fit together."""
    if any(names_outside(choice) or is_model_path(choice) for choice in choices):
        return _merge(_folders(), kind, choices)  # other folders have other modules and models
    sized = {choice: node for choice in choices if (node := _made_cluster(choice)) is not None}
    tree = copy.deepcopy(_cached_merge(_folders(), kind, tuple(_smallest(one, sized) for one in choices)))
    for node in sized.values():
        tree["cluster"] = dict(node)
    return tree


def _folders() -> tuple[Path, ...]:
    """Return the folders of option files, this package's first."""
    return options.CONF_DIR, *options.own_folders()


def _made_cluster(choice: Override) -> Mapping[str, Any] | None:
    """Return the node of a cluster without a file; None for any other choice."""
    if choice.key != "cluster" or choice.text in option_groups()["cluster"]:
        return None
    return requested_cluster(choice.text)


def _smallest(choice: Override, sized: Mapping[Override, Any]) -> Override:
    """Replace made clusters by one stand-in: they differ only in their own node, so one merge suffices."""
    return Override("cluster", _STAND_IN) if choice in sized else choice


@lru_cache(maxsize=64)
def _cached_merge(folders: tuple[Path, ...], kind: Kind, choices: tuple[Override, ...]) -> Tree:
    """Return the cached merge: a sweep, and most words of one command, repeat the same choices."""
    words = (f"{choice.key}={choice.text}" for choice in choices)
    name = digest_of([_FORM, kind, *words, "", *fingerprint(*folders)])
    tree: Tree = kept(name, lambda: _merge(folders, kind, choices), _names_own_classes)
    return tree


def _merge(folders: Sequence[Path], kind: Kind, choices: Sequence[Override]) -> Tree:
    from servetwin.config.compose.hydra_merge import merged

    made = {choice: option for choice in choices if (option := _without_file(choice)) is not None}
    chosen = [made[choice][0] if choice in made else choice for choice in choices]
    traces = [] if any(choice.key == "trace" for choice in choices) else _DEFAULT_TRACES
    defaults = [trace_option(Override("trace", name)) for name in traces]
    tree = merged(folders, kind, chosen, [*defaults, *made.values()])
    system = next((choice.text for choice in choices if choice.key == "system"), tree["system"]["name"])
    for choice in choices:
        if group_of(choice.key) is not None:
            file = made[choice][1] if choice in made else option_file(choice.key, choice.text)
            _drop_parameters(tree, system, choice, file.get("params", {}))
    return tree


def _drop_parameters(tree: Tree, system: str, choice: Override, own: Mapping[str, Any]) -> None:
    """Remove from a chosen policy the parameters that the system's file gives the policy it replaces.

    A parameter of that name of the new policy keeps its ``own`` value, that of its option file.
    """
    group = choice.key.partition("/")[2]
    file = option_file("system", system)
    given = file.get(group, {}).get("params", {})
    if not given or {group: choice.text} in file["defaults"]:
        return
    params = tree["system"][group]["params"]
    for name in given:
        params.pop(name, None)
        if name in own:
            params[name] = own[name]


def _without_file(choice: Override) -> tuple[Override, Mapping[str, Any]] | None:
    """Return the option under its name for Hydra, and its content; None if it has a file."""
    if names_outside(choice):
        return outside_option(choice)
    if is_model_path(choice):
        return model_option(choice)
    if choice.key == "trace" and choice.text in trace_names():
        return trace_option(choice)
    if choice.key != "cluster" or choice.text in option_groups()["cluster"]:
        return None
    node = requested_cluster(choice.text)
    return None if node is None else (choice, node)


def _names_own_classes(tree: Any) -> bool:
    """Return whether its policies are those of the option files: cached data must not name own code."""
    known = option_groups()
    try:
        chosen = {f"system/{group}": tree["system"][group] for group in POLICY_GROUPS}
        return all(
            one["name"] in known[key] and one["policy"] == option_file(key, one["name"])["policy"]
            for key, one in chosen.items()
        )
    except (KeyError, TypeError):
        return False
