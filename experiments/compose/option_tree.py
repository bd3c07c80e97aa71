"""What the option files say for the chosen options, merged: plain data, references and missing values in it.

Hydra merges. The same files, choices and versions give the same data, so they are merged once: to load Hydra
and merge takes about a quarter of a second of CPU (benchmarks/README.md, run_anew).
"""

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from experiments.compose.clusters import requested_cluster
from experiments.compose.content_cache import digest_of, kept
from experiments.compose.fingerprint import fingerprint
from experiments.config import options
from experiments.config.config import Kind
from experiments.config.model_path import is_model_path, model_option
from experiments.config.options import option_file, option_groups
from experiments.config.overrides import Override
from experiments.config.trace_options import trace_names, trace_option
from experiments.policy.groups import POLICY_GROUPS
from experiments.policy.outside import names_outside, outside_option

Tree = dict[str, Any]
_DEFAULT_TRACES: Final = ("azure_conv", "azure_conv_like")  # of simulate.yaml and realexec.yaml
_STAND_IN: Final = "a100_x1"
_FORM: Final = "1"  # of what is kept: another one where the same content is to be merged into other data


def option_tree(kind: Kind, choices: Sequence[Override]) -> Tree:
    """The merged options. Raises UserError when the files do not fit together."""
    if any(names_outside(choice) or is_model_path(choice) for choice in choices):
        return _merged(options.CONF_DIR, kind, choices)  # other folders have other modules and models
    sized = {choice: node for choice in choices if (node := _made_cluster(choice)) is not None}
    tree = copy.deepcopy(_kept(options.CONF_DIR, kind, tuple(_smallest(one, sized) for one in choices)))
    for node in sized.values():
        tree["cluster"] = dict(node)
    return tree


def _made_cluster(choice: Override) -> Mapping[str, Any] | None:
    """The node of a cluster without a file; None for any other choice."""
    if choice.key != "cluster" or choice.text in option_groups()["cluster"]:
        return None
    return requested_cluster(choice.text)


def _smallest(choice: Override, sized: Mapping[Override, Any]) -> Override:
    """One made cluster stands in for all, since they differ in their own node alone: they are merged once."""
    return Override("cluster", _STAND_IN) if choice in sized else choice


@lru_cache(maxsize=64)
def _kept(folder: Path, kind: Kind, choices: tuple[Override, ...]) -> Tree:
    """A sweep, and most words of one command, choose the same again."""
    words = (f"{choice.key}={choice.text}" for choice in choices)
    name = digest_of([_FORM, kind, *words, "", *fingerprint(folder)])
    tree: Tree = kept(name, lambda: _merged(folder, kind, choices), _names_own_classes)
    return tree


def _merged(folder: Path, kind: Kind, choices: Sequence[Override]) -> Tree:
    from experiments.compose.hydra_merge import merged

    made = {choice: option for choice in choices if (option := _without_file(choice)) is not None}
    chosen = [made[choice][0] if choice in made else choice for choice in choices]
    traces = [] if any(choice.key == "trace" for choice in choices) else _DEFAULT_TRACES
    defaults = [trace_option(Override("trace", name)) for name in traces]
    return merged(folder, kind, chosen, [*defaults, *made.values()])


def _without_file(choice: Override) -> tuple[Override, Mapping[str, Any]] | None:
    """The option under the name that Hydra is given, and its content; None where there is a file."""
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
    """Whether its policies are those of the option files: kept data names no code of its own."""
    known = option_groups()
    try:
        chosen = {f"system/{group}": tree["system"][group] for group in POLICY_GROUPS}
        return all(
            one["name"] in known[key] and one["policy"] == option_file(key, one["name"])["policy"]
            for key, one in chosen.items()
        )
    except (KeyError, TypeError):
        return False
