"""Composes one frozen RunConfig from command-line words.

``option_tree`` chooses and merges option files. Single values are typed and set here, because Hydra's
grammar would reinterpret paths and its errors do not say what to write instead.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from hwmodels.catalogue import gpu_named, llm_named, load_gpu, quantised_publication, unknown_llm
from hwmodels.catalogue.names import is_hub_name
from hwmodels.catalogue.stacks import is_stack
from servetwin.config.compose import run_again
from servetwin.config.compose.checks import check
from servetwin.config.compose.clusters import (
    CLUSTER_GPU,
    check_gpu,
    cluster_named,
    made_names,
    near_cluster,
    requested_cluster,
)
from servetwin.config.compose.measured_links import fill_measured_links
from servetwin.config.compose.option_tree import Tree, option_tree
from servetwin.config.compose.overhead_file import KEY as OVERHEAD_KEY
from servetwin.config.compose.resolved import built
from servetwin.config.compose.unread_keys import refuse_unread
from servetwin.config.compose.version_terms import (
    UNSET,
    fill_version_terms,
    take_whole_sections,
    tell_own_numbers,
)
from servetwin.config.config import Kind, RunConfig
from servetwin.config.key import declared_keys
from servetwin.config.meanings import meant_words
from servetwin.config.model_path import is_model_path
from servetwin.config.models_config import fill_prefix_caching_default
from servetwin.config.options import misfit, option_file, option_groups, path_of_option
from servetwin.config.overrides import (
    LITERAL_KEYS,
    Override,
    Wanted,
    canonical,
    closest,
    echo,
    leaves,
    parse_value,
    parse_words,
    unquoted,
)
from servetwin.config.policy.outside import names_outside, other_choices, outside_wanted
from servetwin.config.policy.parameters import declared
from servetwin.config.trace_options import (
    INSTEAD_FOR_RECORDED,
    RATES,
    RATES_TRACES,
    drop_default_limit,
    drop_default_requests,
    trace_names,
    trace_parameters,
    wanted_parameter,
)
from servetwin.config.unknown_key import SAME_PARAMETERS, UnknownParameterError, option_with, unknown_key
from servetwin.config.vllm_defaults import USAGE_CONTEXTS, batch_defaults
from serving.vocabulary.errors import UserError

# Values of a configuration that are missing (``???``) or another key's (``${engine.max_num_seqs}``).

MISSING: Final = UNSET
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\}")
_DEEPEST: Final = 8  # a longer chain of references is circular


class _OtherFormError(Exception):
    """A reference that is not only the name of another key, or has no target."""


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference to another key."""
    return isinstance(value, str) and "${" in value


def missing_keys(value: Any, key: str = "") -> Iterator[str]:
    """Yield the dotted keys without a value, and items of lists in OmegaConf's form: ``ways[0]``."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from missing_keys(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from missing_keys(inner, f"{key}[{at}]")
    elif value == MISSING:
        yield key


def followed(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same data with every reference resolved.

    The option files of this package name keys only. Other forms (resolvers, text around a name) are resolved
    by OmegaConf; a UserError says what is wrong.
    """
    try:
        return {name: _value(inner, tree, 0) for name, inner in tree.items()}
    except _OtherFormError:
        from servetwin.config.compose import hydra_merge

        return hydra_merge.followed(tree)


def _value(value: Any, tree: Mapping[str, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _value(inner, tree, depth) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, tree, depth) for inner in value]
    if not is_reference(value):
        return value
    reference = _REFERENCE.fullmatch(value)
    if reference is None or depth == _DEEPEST:
        raise _OtherFormError
    return _value(_value_at(tree, reference[1]), tree, depth + 1)


def _value_at(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise _OtherFormError
        value = value[part]
    return value


# Default values that depend on the engine: limits by vLLM's rule, the system's batcher and, for a data-
# parallel group, its dispatcher.


def fill_batch_defaults(tree: dict[str, Any], usage: Override | None = None) -> bool:
    """Set the limits that a preset leaves to vLLM's rule; ``usage``: the word for the usage context.

    Returns whether ``max_num_seqs`` was among them.
    """
    engine = tree["engine"]
    unset = [name for name in ("max_num_seqs", "max_num_batched_tokens") if engine[name] == MISSING]
    if usage is not None and not unset:
        raise UserError(
            f"{usage} does nothing with engine={engine['name']}, whose limits are its own: leave it out"
        )
    context = engine["usage_context"] if usage is None else usage.text
    if unset and context in USAGE_CONTEXTS:
        known = batch_defaults(load_gpu(tree["cluster"]["gpu"]), context)
        for name in unset:
            engine[name] = known[name]
    elif unset:
        raise UserError(f"{usage} is unknown: write one of {', '.join(USAGE_CONTEXTS)}")
    return "max_num_seqs" in unset


def clip_default_seqs(engine: dict[str, Any]) -> None:
    """Limit a default ``max_num_seqs`` to the tokens of a step, as vLLM does.

    The end of ``_set_default_max_num_seqs_and_batched_tokens_args`` in vllm/engine/arg_utils.py (0.19.0).
    """
    engine["max_num_seqs"] = min(engine["max_num_seqs"], engine["max_num_batched_tokens"])


def fill_dispatch_default(tree: dict[str, Any]) -> None:
    """Dispatch requests to engines of a data-parallel group as vLLM's own front end does."""
    dispatch = tree["system"]["dispatch"]
    if tree["engine"]["data_parallel_size"] > 1 and dispatch["name"] == "least_outstanding":
        dispatch.clear()
        dispatch |= option_file("system/dispatch", "waiting_running")


def fill_pipeline_defaults(tree: dict[str, Any], written: Collection[str]) -> None:
    """Turn off, for models in stages, what their engines do not have, unless the user wrote it."""
    stages = tree["system"]["stages"]["name"] != "none" and not is_stack(tree["model"]["name"])
    if tree["model"]["pp"] > 1 or stages:
        for name in ("asynchronous", "prefix_caching"):
            if f"engine.{name}" not in written:
                tree["engine"][name] = False


def fill_engine_default(tree: dict[str, Any], groups: dict[str, list[str]]) -> None:
    """Replace ``system/batcher=engine_default`` by the option that ``engine.batcher`` names."""
    options = [name for name in groups["system/batcher"] if name != "engine_default"]
    named, batcher = tree["engine"]["batcher"], tree["system"]["batcher"]
    if named not in options:
        raise UserError(f"engine.batcher={echo(str(named))} is unknown: write one of {', '.join(options)}")
    if batcher["name"] == "engine_default":
        option = option_file("system/batcher", named)
        batcher |= option | {"params": batcher["params"] | option["params"]}


# Set by the chosen option file: another value under the option's name would label results wrongly.
_FIXED_LEAVES: Final = frozenset({"name", "policy", "source"})
_USAGE: Final = "engine.usage_context"
_OWN_ENGINE: Final = Override("engine", "own_workers")
PRECISION_KEY: Final = "model.precision"
_FIXED_KEYS: Final = frozenset({"kind", "cluster.topology", "trace.synthetic"})


def load_config(overrides: Sequence[str], kind: Kind, alone: bool = False) -> RunConfig:
    """Return the checked configuration of a run from ``key=value`` words; ``out=FOLDER`` is required.

    ``config=DIR`` among them starts from the configuration of an earlier run instead of the defaults.
    ``alone``: a user wrote the words for this run, not for many: each must be read by it.

    Raises UserError for every word, option or value that cannot be used.
    """
    groups = option_groups()
    for word in overrides:
        _refuse_bare_option(word, groups)
    words = _with_published_precision(parse_words(overrides))
    saved = [word for word in words if word.key == run_again.KEY]
    words = [
        chosen_option(word, groups) if word.key in groups else word for word in words if word not in saved
    ]
    choices = [word for word in words if word.key in groups]
    values = [word for word in words if word.key not in groups]
    for choice in choices:
        check_choice(choice, groups)
    if kind == "realexec" and not any(choice.key == "engine" for choice in choices):
        choices.append(_OWN_ENGINE)  # real workers run their own engine, whatever a system imitates
    try:
        os.getcwd()  # noqa: PTH109 (must exist for relative paths, and for Hydra)
        tree, literals = option_tree(kind, choices), dict[str, str]()
        _check_own_file(tree, choices)
        if saved:
            tree, literals = run_again.run_again(saved[0], tree, words, kind)
        if kind == "realexec" and not saved:
            drop_default_limit(tree["trace"], {word.key: word.text for word in words})
        drop_default_requests(tree["trace"]["params"], _written_parameters(words))
        chosen = bool(saved) or any(choice.key == "system/dispatch" for choice in choices)
        literals |= _apply(tree, values, kind, groups, chosen)
        fill_measured_links(tree, literals.get("engine.profile"))
        data = _resolve(tree, literals)
    except FileNotFoundError as error:
        raise UserError("the folder you are in was removed: cd to one that exists and run again") from error
    except yaml.YAMLError as error:
        raise misfit(error) from error
    config: RunConfig = built(RunConfig, data, "", "the configuration")
    check(config)
    if alone:
        refuse_unread(values, config)
    return config


def _check_own_file(tree: Tree, choices: Sequence[Override]) -> None:
    """Refuse a chosen file of the user's without its name, and without the GPU of a cluster.

    The user cannot set these keys on the command line. A cluster's GPU gets the catalogue's name.
    """
    for choice in choices:
        owner, leaf = _place(tree, choice.key.replace("/", "."))
        node = owner[leaf]
        needed = {"name": choice.text, **({"gpu": "h100", "gpus": "8"} if choice.key == "cluster" else {})}
        for key, example in needed.items():
            if isinstance(node, dict) and node.get(key) == MISSING:
                file = path_of_option(choice.key, choice.text)
                raise UserError(f"{file} has no {key}: add a line '{key}: {example}' to it")
    tree["cluster"]["gpu"] = gpu_named(str(tree["cluster"]["gpu"]))


def _written_parameters(words: Sequence[Override]) -> set[str]:
    """Return the parameters of the trace to which the user gives a value."""
    return {canonical(word.key).removeprefix("trace.") for word in words if word.text != "null"}


def defaults(kind: Kind) -> dict[str, tuple[Any, Wanted]]:
    """Map every key that a user may set to its default (None if there is none) and its type."""
    tree, groups = option_tree(kind, []), option_groups()
    fill_batch_defaults(tree)
    fill_version_terms(tree["engine"])
    values, known = followed(tree), {}
    for key, path in _paths(tree, kind).items():
        owner, leaf = _place(values, path)
        known[key] = (None if owner[leaf] == MISSING else owner[leaf], _wanted(tree, path, groups))
    return known


def _refuse_bare_option(word: str, groups: dict[str, list[str]]) -> None:
    """Refuse an option's name without its group in front."""
    for group, names in groups.items() if "=" not in word else ():
        if word in names or (group == "cluster" and requested_cluster(word) is not None):
            raise UserError(f"'{word}' has no '=': write {group}={word}")


def _with_published_precision(words: Sequence[Override]) -> list[Override]:
    """Write ``model.precision`` beside the name of a quantised publication, unless the user did."""
    told = list(words)
    for word in words:
        found = quantised_publication(unquoted(word).text) if word.key == "model" else None
        if found is not None and not any(other.key == PRECISION_KEY for other in words):
            told.append(Override(PRECISION_KEY, found[1]))
    return told


def chosen_option(word: Override, groups: dict[str, list[str]]) -> Override:
    """Return the option that a word means: its own name, or another one of a model or a cluster."""
    choice = unquoted(word)
    if choice.text in groups[choice.key]:
        return choice
    if choice.key == "model" and (found := quantised_publication(choice.text)) is not None:
        return Override("model", found[0])
    if choice.key == "model" and (name := llm_named(choice.text)) in groups["model"]:
        return Override("model", name)
    return Override("cluster", cluster_named(choice.text)) if choice.key == "cluster" else choice


def check_choice(choice: Override, groups: dict[str, list[str]]) -> None:
    """Refuse an option that has no file and is not made on request."""
    options = groups[choice.key]
    if choice.key == "model" and is_hub_name(choice.text) and not os.path.lexists(choice.text):
        raise UserError(str(unknown_llm(choice.text)))
    if choice.text in options or is_model_path(choice) or names_outside(choice):
        return
    made = other_choices(choice.key)
    if choice.key == "cluster":
        if requested_cluster(choice.text) is not None:
            return
        made = f", {made_names()}"
    if choice.key == "model":
        made = ", or the path of the model's own config.json (or of the folder that holds one): model=PATH"
    if choice.key == "trace" and any(mark in choice.text for mark in "./"):
        raise UserError(
            f"trace={echo(choice.text)} is a file: write trace=file trace.path={echo(choice.text)}"
        )
    near = (near_cluster(choice.text) if choice.key == "cluster" else "") or closest(choice.text, options)
    hint = f"{choice.key}={near} if that is meant, or " if near else ""
    raise UserError(f"unknown option {choice}: write {hint}one of {', '.join(options)}{made}")


def _apply(
    tree: Tree, words: Sequence[Override], kind: Kind, groups: dict[str, list[str]], dispatch_chosen: bool
) -> dict[str, str]:
    """Set the user's values in ``tree``; return the path-like ones, in which '${' is no reference.

    The engine is set first: it determines the parameters of the system's batcher and dispatcher.
    """
    literals = {word.key: word.text for word in words if word.key in LITERAL_KEYS}
    words = [word for word in words if word.key not in LITERAL_KEYS]
    by_key = {word.key: word for word in words}
    version, overhead = by_key.get("engine.version"), literals.get(OVERHEAD_KEY)
    fill_version_terms(tree["engine"], None if version is None else version.text)
    take_whole_sections(tree["engine"], literals)
    seqs_by_rule = fill_batch_defaults(tree, by_key.get(_USAGE)) and "engine.max_num_seqs" not in by_key
    for word in words:
        if not word.key.startswith("system."):
            _set(tree, word, kind, groups)
    slo, engine = tree["slo"], tree["engine"]
    own_slo = any(word.key in ("slo.ttft_ms", "slo.tpot_ms") for word in words)
    if own_slo and slo["name"] != "custom":  # custom already in the configuration of an earlier run
        slo |= {"source": f"command line, instead of {slo['name']}", "name": "custom"}
    tell_own_numbers(engine, words, overhead)
    if seqs_by_rule:
        clip_default_seqs(engine)
    fill_pipeline_defaults(tree, by_key)
    fill_prefix_caching_default(tree, by_key)
    fill_engine_default(tree, groups)
    if not dispatch_chosen:
        fill_dispatch_default(tree)
    for word in words:
        if word.key.startswith("system."):
            _set(tree, word, kind, groups)
    return literals


def _set(tree: Tree, word: Override, kind: Kind, groups: dict[str, list[str]]) -> None:
    paths = _paths(tree, kind)
    key = canonical(word.key)
    _refuse_fixed(word, key, groups)
    if key == CLUSTER_GPU:
        word = check_gpu(word, tree["cluster"]["name"])
    if key not in paths:
        _refuse_parameter(tree, word, key, paths)
        raise unknown_key(word.key, [*paths, *groups], kind, word.text)
    owner, leaf = _place(tree, paths[key])
    if is_reference(owner[leaf]):
        source = owner[leaf].strip("${} ")
        raise UserError(f"{word} cannot be set apart from {source}, which it follows: write {source}=VALUE")
    owner[leaf] = parse_value(word, _wanted(tree, paths[key], groups))


def _refuse_parameter(tree: Tree, word: Override, key: str, keys: Iterable[str]) -> None:
    """Refuse a parameter that the chosen policy or trace does not have."""
    owner, _, name = key.rpartition(".")
    group, trace = owner.removeprefix("system."), tree["trace"]
    if owner == "trace" and any(name in trace_parameters(other) for other in trace_names()):
        option, known = f"trace={trace['name']}", [f"trace.{known}" for known in trace["params"]]
        if not trace["synthetic"] and name in INSTEAD_FOR_RECORDED:
            instead = INSTEAD_FOR_RECORDED[name].format(echo(word.text))
            raise UserError(f"{word.key} is for drawn traces and {option} is recorded: write {instead}")
        if name == RATES:
            raise UserError(f"{word.key} does not fit {option}: write {RATES_TRACES}")
    elif owner not in (key, group) and "name" in tree["system"].get(group, ()):
        option = f"system/{group}={tree['system'][group]['name']}"
        known = sorted(name for name in keys if name.startswith(owner + "."))
    else:
        return
    plain = meant_words(word.key, list(keys), RunConfig) if owner == "trace" else []
    if meant := [one for one in plain if one.startswith("trace.window")]:
        raise UserError(
            f"unknown key '{echo(word.key)}' for the chosen {option}: write {' or '.join(meant)}, seconds "
            f"of a part of the trace, or one of {', '.join(known)}"
        )
    write = f"write only {', '.join(known)}" if known else "leave it out, for it takes no parameters"
    write += option_with(owner.replace(".", "/"), name)
    if (same := f"{owner}.{SAME_PARAMETERS.get(name, '')}") in known:
        write = f"write {same}, which is its word for it"
    raise UnknownParameterError(f"unknown key '{echo(word.key)}' for the chosen {option}: {write}")


def _paths(tree: Tree, kind: Kind) -> dict[str, str]:
    """Map every key that may be set, as the user writes it, to its place in the tree."""
    paths = {
        path: path
        for path, key in declared_keys(RunConfig).items()
        if key.kind in (None, kind) and not _is_fixed(path)
    }
    for group, policy in tree["system"].items():
        if isinstance(policy, dict):
            params = policy.get("params") or ()
            paths |= {f"system.{group}.{name}": f"system.{group}.params.{name}" for name in params}
    return paths | {f"trace.{name}": f"trace.params.{name}" for name in tree["trace"]["params"]}


def _place(tree: Tree, path: str) -> tuple[Tree, str]:
    """Return the mapping that contains the last part of the path, and that part."""
    *owners, leaf = path.split(".")
    for owner in owners:
        tree = tree[owner]
    return tree, leaf


def _wanted(tree: Tree, path: str, groups: dict[str, list[str]]) -> Wanted:
    """Return the type of the value at a path."""
    top, *inner = path.split(".")
    if "params" not in inner:
        return leaves(RunConfig)[path]
    name = inner[-1]
    return (
        wanted_parameter(tree["trace"]["name"], name)
        if top == "trace"
        else _wanted_parameter(tree, inner[0], name, groups)
    )


def _wanted_parameter(tree: Tree, group: str, name: str, groups: dict[str, list[str]]) -> Wanted:
    """Return the default's type, with null if the constructor takes it; without one, the constructor's."""
    key, option = f"system/{group}", tree["system"][group]
    if option["name"] not in groups[key]:
        return outside_wanted(key, option, name)
    wanted = declared(f"{key}={option['name']}", option["policy"], name)
    default = option["params"][name]
    return wanted if default in (None, MISSING) else Wanted(type(default), wanted.optional)


def _is_fixed(key: str) -> bool:
    return key in _FIXED_KEYS or ("." in key and key.rpartition(".")[2] in _FIXED_LEAVES)


def _refuse_fixed(word: Override, key: str, groups: dict[str, list[str]]) -> None:
    """Refuse keys that belong to an option file, and groups written as if they were values."""
    slashed = key.replace(".", "/")
    if slashed in groups:
        raise UserError(f"{word} chooses an option: write {slashed}={echo(word.text)}")
    owner = key.rpartition(".")[0].replace(".", "/")
    if key in leaves(RunConfig) and _is_fixed(key) and owner in groups:
        options = ", ".join(groups[owner])
        raise UserError(f"{word.key} belongs to the chosen {owner}: write {owner}=OPTION, one of {options}")


def _resolve(tree: Tree, literals: dict[str, str]) -> dict[str, Any]:
    """Return plain data with all references resolved; UserError for a missing required value."""
    for path in sorted(set(missing_keys(tree)) - LITERAL_KEYS):
        key, group = canonical(path), path.rpartition(".")[0]
        owner, _, leaf = group.rpartition(".")
        if owner and group.replace(".", "/") in option_groups():
            raise UserError(
                f"{owner}={tree[owner]['name']} chooses no option of {owner}/{leaf}: write "
                f"'- {leaf}: OPTION' among the defaults of its file"
            )
        raise UserError(f"{key} has no default: write {key}=VALUE")
    data = followed(tree)
    data["out"] = literals.get("out", "")
    for key, text in literals.items():
        owner, _, leaf = key.rpartition(".")
        if owner:
            data[owner][leaf] = text
    return data
