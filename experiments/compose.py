"""From command-line words to one frozen RunConfig.

Hydra chooses and merges the option files of ``conf/``; single values are typed and set here, because Hydra's
grammar would reinterpret paths and its errors do not say what to write instead.
"""

import copy
import dataclasses
import functools
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments import options as option_files
from experiments import run_again
from experiments.checks import check
from experiments.clusters import made_names, requested_cluster
from experiments.config import Kind, RunConfig
from experiments.engine_defaults import fill_batch_defaults, fill_engine_default
from experiments.model_path import as_option, is_model_path
from experiments.options import option_groups
from experiments.outside_policies import names_outside, other_choices, outside_option, outside_wanted
from experiments.overrides import (
    LITERAL_KEYS,
    Override,
    Wanted,
    canonical,
    closest,
    echo,
    leaves,
    parse_value,
    parse_words,
    unknown_key,
)
from experiments.policy_parameters import declared
from experiments.resolved import built
from experiments.trace_options import INSTEAD_FOR_RECORDED, trace_names, trace_parameters, wanted_parameter
from experiments.trace_options import register as register_trace
from serving.errors import UserError

# Set by the chosen option file: another value under the option's name would label results wrongly.
_FIXED_LEAVES: Final = frozenset({"name", "policy", "source"})
_DEFAULT_TRACES: Final = ("azure_conv", "azure_conv_like")  # of simulate.yaml and realexec.yaml
_USAGE: Final = "engine.usage_context"
_FIXED_KEYS: Final = frozenset({"kind", "cluster.gpu", "cluster.topology", "trace.synthetic"})


def load_config(overrides: Sequence[str], kind: Kind) -> RunConfig:
    """The checked configuration of one run from ``key=value`` words; ``out=FOLDER`` is required.

    ``config=DIR`` among them begins with the configuration of an earlier run instead of the defaults.

    Raises UserError for every word, option or value that cannot be used.
    """
    groups = option_groups()
    for word in overrides:
        _refuse_bare_option(word, groups)
    words = parse_words(overrides)
    saved = [word for word in words if word.key == run_again.KEY]
    words = [word for word in words if word not in saved]
    choices = [word for word in words if word.key in groups]
    values = [word for word in words if word.key not in groups]
    for choice in choices:
        _check_choice(choice, groups)
    try:
        tree, literals = _compose(kind, choices), dict[str, str]()
        if saved:
            tree, literals = run_again.run_again(saved[0], tree, words, kind)
        literals |= _apply(tree, values, kind, groups)
        data = _resolve(tree, literals)
    except FileNotFoundError as error:  # Hydra asks for the current folder
        raise UserError("the folder you are in was removed: cd to one that exists and run again") from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"the option files in {option_files.CONF_DIR} do not fit together ({reason}): "
            "write them like their neighbours"
        ) from error
    config: RunConfig = built(RunConfig, data, "", "the configuration")
    check(config)
    return config


def defaults(kind: Kind) -> dict[str, tuple[Any, Wanted]]:
    """Every key a user may set -> its default (None where there is none) and what it takes."""
    tree = _compose(kind, [])
    fill_batch_defaults(tree)
    return {
        key: (OmegaConf.select(tree, path, throw_on_missing=False), wanted)
        for key, (path, wanted) in _settable(tree, kind, option_groups()).items()
    }


def _refuse_bare_option(word: str, groups: dict[str, list[str]]) -> None:
    """An option's name without its group in front."""
    for group, names in groups.items():
        if word in names or (group == "cluster" and "=" not in word and _make_cluster(word)):
            raise UserError(f"'{word}' has no '=': write {group}={word}")


def _check_choice(choice: Override, groups: dict[str, list[str]]) -> None:
    """Refuse an option that no file has, after making the cluster it may ask for."""
    options = groups[choice.key]
    if choice.text in options or is_model_path(choice) or names_outside(choice):
        return
    made = other_choices(choice.key)
    if choice.key == "cluster":
        if _make_cluster(choice.text):
            return
        made = f", {made_names()}"
    if choice.key == "trace" and any(mark in choice.text for mark in "./"):
        raise UserError(
            f"trace={echo(choice.text)} is a file: write trace=file trace.path={echo(choice.text)}"
        )
    near = closest(choice.text, options)
    hint = f", {choice.key}={near} if that is meant" if near else ""
    raise UserError(f"unknown option {choice}: write one of {', '.join(options)}{made}{hint}")


def _make_cluster(name: str) -> bool:
    """Register ``FAMILY_xN`` with Hydra; False when the name is not of that form or N is out of range."""
    node = requested_cluster(name)
    if node is None:
        return False
    ConfigStore.instance().store(group="cluster", name=name, node=node)
    return True


def _compose(kind: Kind, choices: Sequence[Override]) -> DictConfig:
    """Hydra's merge of the schema, the primary file and the chosen options, values still unresolved."""
    chosen = tuple(outside_option(choice) if names_outside(choice) else choice for choice in choices)
    if chosen != tuple(choices):  # whose parameters are those of a module, which another folder has otherwise
        return _composed.__wrapped__(option_files.CONF_DIR, kind, chosen)
    return copy.deepcopy(_composed(option_files.CONF_DIR, kind, chosen))


@functools.lru_cache(maxsize=64)
def _composed(folder: Path, kind: Kind, chosen: tuple[Override, ...]) -> DictConfig:
    """Of the option files in ``folder``; a sweep, and most words of one command, choose the same again."""
    choices = [as_option(choice) for choice in chosen]
    ConfigStore.instance().store(name="run_schema", node=_mutable(RunConfig))
    for name in [choice.text for choice in choices if choice.key == "trace"] or _DEFAULT_TRACES:
        register_trace(name)
    words = [f"{choice.key}={choice.text}" for choice in choices]
    outer = GlobalHydra.instance().hydra  # a caller's own, in a notebook or a sweep
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="servetwin"):
            return compose(config_name=kind, overrides=words)
    finally:
        GlobalHydra.instance().hydra = outer


def _mutable(config_class: type) -> type:
    """The same dataclass, unfrozen: OmegaConf makes a frozen one read-only, so nothing could be merged in."""
    specs = []
    for name, hint in typing.get_type_hints(config_class).items():
        nested = dataclasses.is_dataclass(hint)
        specs.append((name, _mutable(typing.cast(type, hint)) if nested else hint))
    return dataclasses.make_dataclass(config_class.__name__, specs)


def _apply(
    tree: DictConfig, words: Sequence[Override], kind: Kind, groups: dict[str, list[str]]
) -> dict[str, str]:
    """Set the user's values in ``tree``; returns the path-like ones, which must not be interpolated.

    The engine comes first: it decides which batcher's parameters the system has.
    """
    literals = {word.key: word.text for word in words if word.key in LITERAL_KEYS}
    words = [word for word in words if word.key not in LITERAL_KEYS]
    fill_batch_defaults(tree, {word.key: word for word in words}.get(_USAGE))
    for word in words:
        if not word.key.startswith("system."):
            _set(tree, word, kind, groups)
    own_slo = any(word.key in ("slo.ttft_ms", "slo.tpot_ms") for word in words)
    if own_slo and tree.slo.name != "custom":  # as it is in the configuration of a run that had one
        tree.slo.source = f"command line, instead of {tree.slo.name}"
        tree.slo.name = "custom"
    if any(word.key.startswith("engine.overhead.") for word in words):
        tree.engine.overhead.source = f"command line, instead of engine={tree.engine.name}"
    fill_engine_default(tree, groups)
    for word in words:
        if word.key.startswith("system."):
            _set(tree, word, kind, groups)
    return literals


def _set(tree: DictConfig, word: Override, kind: Kind, groups: dict[str, list[str]]) -> None:
    keys = _settable(tree, kind, groups)
    key = canonical(word.key)
    _refuse_fixed(word, key, groups)
    if key not in keys:
        _refuse_parameter(tree, word, key, keys)
        raise unknown_key(word.key, [*keys, *groups], kind)
    path, wanted = keys[key]
    owner, _, leaf = path.rpartition(".")
    node = OmegaConf.select(tree, owner) if owner else tree
    if OmegaConf.is_interpolation(node, leaf):
        source = str(OmegaConf.to_container(node, resolve=False)[leaf]).strip("${} ")  # type: ignore[index,call-overload]
        raise UserError(f"{word} cannot be set apart from {source}, which it follows: write {source}=VALUE")
    OmegaConf.update(tree, path, parse_value(word, wanted), force_add=True)


def _refuse_parameter(tree: DictConfig, word: Override, key: str, keys: Iterable[str]) -> None:
    """A parameter that the chosen policy or trace does not have."""
    owner, _, name = key.rpartition(".")
    group = owner.removeprefix("system.")
    if owner == "trace" and any(name in trace_parameters(other) for other in trace_names()):
        option, known = f"trace={tree.trace.name}", [f"trace.{known}" for known in tree.trace.params]
        if not tree.trace.synthetic and name in INSTEAD_FOR_RECORDED:
            instead = INSTEAD_FOR_RECORDED[name].format(echo(word.text))
            raise UserError(f"{word.key} is for drawn traces and {option} is recorded: write {instead}")
    elif owner not in (key, group) and group in tree.system:
        option = f"system/{group}={tree.system[group].name}"
        known = sorted(name for name in keys if name.startswith(owner + "."))
    else:
        return
    write = f"write only {', '.join(known)}" if known else "leave it out, for it takes no parameters"
    raise UserError(f"unknown key '{echo(word.key)}' for the chosen {option}: {write}")


def _settable(tree: DictConfig, kind: Kind, groups: dict[str, list[str]]) -> dict[str, tuple[str, Wanted]]:
    """Key as the user writes it -> (path in the tree, what it takes)."""
    keys = {key: (key, wanted) for key, wanted in leaves(RunConfig).items() if not _is_fixed(key)}
    if kind == "simulate":
        del keys["workers"]
    for group in typing.cast(Iterable[str], tree.system):
        params = OmegaConf.select(tree, f"system.{group}.params")
        for name in params or ():
            wanted = _wanted_parameter(tree, group, name, groups)
            keys[f"system.{group}.{name}"] = (f"system.{group}.params.{name}", wanted)
    for name in tree.trace.params:
        keys[f"trace.{name}"] = (f"trace.params.{name}", wanted_parameter(tree.trace.name, name))
    return keys


def _wanted_parameter(tree: DictConfig, group: str, name: str, groups: dict[str, list[str]]) -> Wanted:
    """As the option file's default is, and null where the constructor takes it; else as the latter says."""
    key, option = f"system/{group}", tree.system[group]
    if option.name not in groups[key]:
        return outside_wanted(key, option, name)
    wanted = declared(f"{key}={option.name}", option.policy, name)
    default = None if OmegaConf.is_missing(option.params, name) else option.params[name]
    if default is None:
        return wanted
    return Wanted(list if isinstance(default, ListConfig) else type(default), wanted.optional)


def _is_fixed(key: str) -> bool:
    return key in _FIXED_KEYS or ("." in key and key.rpartition(".")[2] in _FIXED_LEAVES)


def _refuse_fixed(word: Override, key: str, groups: dict[str, list[str]]) -> None:
    """Keys that belong to an option file, and groups written as if they were values."""
    slashed = key.replace(".", "/")
    if slashed in groups:
        raise UserError(f"{word} chooses an option: write {slashed}={echo(word.text)}")
    owner = key.rpartition(".")[0].replace(".", "/")
    if key in leaves(RunConfig) and _is_fixed(key) and owner in groups:
        options = ", ".join(groups[owner])
        raise UserError(f"{word.key} belongs to the chosen {owner}: write {owner}=OPTION, one of {options}")


def _resolve(tree: DictConfig, literals: dict[str, str]) -> dict[str, Any]:
    """Plain data with every reference followed; UserError for a required value nobody gave."""
    for path in sorted(OmegaConf.missing_keys(tree) - LITERAL_KEYS):
        key, (owner, _, leaf) = canonical(path), path.rpartition(".")
        if path.replace(".", "/") in option_groups():
            raise UserError(
                f"{owner}={tree[owner].name} chooses no option of {owner}/{leaf}: write '- {leaf}: OPTION' "
                "among the defaults of its file"
            )
        raise UserError(f"{key} has no default: write {key}=VALUE")
    data = typing.cast(dict[str, Any], OmegaConf.to_container(tree, resolve=True))
    data["out"] = literals.get("out", "")
    for key, text in literals.items():
        owner, _, leaf = key.rpartition(".")
        if owner:
            data[owner][leaf] = text
    return data
