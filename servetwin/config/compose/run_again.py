"""``config=DIR``: uses the configuration of an earlier run as the defaults of a new one.

A run on real workers may be simulated this way: the same requests and policies, on simulated workers.

The file has values only. Values that depend on another key are turned into references again, so that one
word of the user changes what it would have changed in the first run. An option of the user replaces its
whole group, unless the run already had it.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hwmodels.catalogue import load_gpu
from hwmodels.step_times.engine_terms import engine_terms
from servetwin.config import readers
from servetwin.config.compose.measured_links import KINDS
from servetwin.config.compose.resolved import read_resolved
from servetwin.config.compose.version_terms import UNSET
from servetwin.config.config import MEASURED, Kind, PolicyConfig, RunConfig
from servetwin.config.folder_kind import another_kind
from servetwin.config.key import key_of
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import Override, echo
from servetwin.config.policy.groups import POLICY_GROUPS, group_of
from servetwin.config.policy.saved import check_policies
from servetwin.config.trace_config import TraceConfig
from servetwin.config.trace_options import trace_names, trace_parameters
from servetwin.config.vllm_defaults import USAGE_CONTEXTS, batch_defaults
from serving.vocabulary.errors import UserError
from traces.synthetic.registry import SYNTHETIC

KEY: Final = "config"
_GROUPS_WITH_REAL_KEYS: Final = ("model",)
_COMMANDS: Final = {"simulate": "servetwin simulate", "realexec": "realexec run"}
_PATHS: Final = (("trace", "path"), ("engine", "profile"))


def run_again(
    word: Override, composed: dict[str, Any], words: Sequence[Override], kind: Kind
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the saved configuration with the options in ``words``, and its paths unchanged.

    ``composed``: the configuration of the options alone. Raises UserError for a folder that has no
    config.yaml, one of the other command or of another version, and for policies from outside the package
    that ``words`` do not name.
    """
    path = _file(word)
    saved = read_resolved(path)
    if (saved.kind, kind) == ("realexec", "simulate"):
        saved = twin_of(saved)
    if saved.kind != kind:
        command = _COMMANDS.get(saved.kind, "the version that wrote it")
        raise UserError(f"{path} is of a run by {command}: write {command} {word}")
    groups = option_groups()
    new = {
        one.key: one.text for one in words if one.key in groups and one.text != _option_of_run(saved, one.key)
    }
    kept = [group for group in POLICY_GROUPS if not {"system", f"system/{group}"} & set(new)]
    named = {one.key: one.text for one in words if group_of(one.key) is not None and one.key not in new}
    check_policies(saved.system, named, str(path), kept)
    if "trace" not in new:
        _check_trace(saved.trace, path)
    if "engine" not in new and _names_an_engine(new.get("system")):
        new["engine"] = composed["engine"]["name"]
    data = dataclasses.asdict(saved) | {"out": UNSET, "overwrite": False}
    paths = _without_paths(data, new)
    _refuse_references(data, path)
    _follow(data, saved, new, words)
    for key in new:
        owner, _, leaf = key.rpartition("/")
        into, chosen = (data[owner], composed[owner]) if owner else (data, composed)
        into[leaf] = chosen[leaf]
    return data, paths


def twin_of(real: RunConfig) -> RunConfig:
    """Return the simulation of a real run: one GPU per worker, and no tokens to compute."""
    return typing.cast(RunConfig, _without_real_keys(dataclasses.replace(real, kind="simulate")))


def _without_real_keys(config: Any) -> Any:
    """Return a configuration whose keys of real runs have the values that config.yaml leaves out."""
    plain = {}
    for field in dataclasses.fields(config):
        if field.name in _GROUPS_WITH_REAL_KEYS:
            plain[field.name] = _without_real_keys(getattr(config, field.name))
        elif field.name != "params":
            declared = key_of(field)
            if declared.kind == "realexec" or readers.REAL_WORKERS in declared.read_by:
                plain[field.name] = declared.omit
    return dataclasses.replace(config, **plain)


def _file(word: Override) -> Path:
    try:
        path = Path(word.text).expanduser()
        path = path / "config.yaml" if path.is_dir() else path
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError):
        is_file = False
    if not is_file:
        other = "" if not word.text else another_kind(Path(word.text))
        raise UserError(other or f"{word} has no config.yaml: write config=DIR with the out= of a run")
    return path


def _option_of_run(saved: RunConfig, key: str) -> str:
    """Return the option that the run had."""
    value: Any = saved
    for part in key.split("/"):
        value = getattr(value, part)
    return str(value.name)


def _names_an_engine(system: str | None) -> bool:
    """Return whether the file of a system overrides the engine."""
    chosen = option_file("system", system)["defaults"] if system is not None else []
    return any("/engine" in key for entry in chosen if isinstance(entry, dict) for key in entry)


def _check_trace(trace: TraceConfig, path: Path) -> None:
    if trace.name not in trace_names() or trace.synthetic != (trace.name in SYNTHETIC):
        raise UserError(
            f"trace={echo(trace.name)} in {path} is no trace of this version: write the trace= that is meant"
        )
    if unknown := sorted(set(trace.params) - set(trace_parameters(trace.name))):
        raise UserError(
            f"trace={trace.name} in {path} has the parameter '{echo(unknown[0])}', which it does not take in "
            "this version: use the version that wrote it, or write another trace="
        )


def _without_paths(data: dict[str, Any], new: Mapping[str, str]) -> dict[str, str]:
    """Remove the paths of unchanged groups: their text may look like a reference."""
    paths = {}
    for group, key in _PATHS:
        if group not in new and data[group][key] is not None:
            paths[f"{group}.{key}"], data[group][key] = data[group][key], None
    return paths


def _refuse_references(data: Mapping[str, Any], path: Path) -> None:
    """Refuse references: runs write none, and one could read something outside the file."""
    for text in _texts(data):
        if "${" in text:
            raise UserError(f"{path} has '{echo(text)}', a reference: use the file as the run wrote it")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _follow(
    data: dict[str, Any], saved: RunConfig, new: Mapping[str, str], words: Sequence[Override]
) -> None:
    """Turn values that depended on another key into references: limits, the batcher's parameters, ..."""
    if saved.kind == "realexec" and saved.cluster.gpus == saved.workers:
        data["cluster"] |= {"gpus": "${workers}", "topology": "local_${workers}x1"}
    if saved.cluster.links == MEASURED and {"cluster.links", "engine.profile"} & {one.key for one in words}:
        data["cluster"] |= dict.fromkeys(f"{kind}_gbps" for kind in KINDS)  # the other profile sets them
    if "engine" not in new:
        data["engine"] |= _limits_by_rule(saved)
        if _terms_follow_version(saved):
            data["engine"]["overhead"]["source"] = UNSET
    batcher = saved.system.batcher
    another = "engine" in new or any(word.key == "engine.batcher" for word in words)
    if another and batcher.name == saved.engine.batcher:
        data["system"]["batcher"] = option_file("system/batcher", "engine_default")
        return
    for name, source in _referenced_keys(batcher).items():
        if batcher.params.get(name) == getattr(saved.engine, source.partition(".")[2]):
            data["system"]["batcher"]["params"][name] = f"${{{source}}}"


def _limits_by_rule(saved: RunConfig) -> dict[str, str]:
    """Return the limits that the engine's preset leaves to vLLM's rule and that have the rule's value."""
    engine = saved.engine
    if engine.name not in option_groups()["engine"] or engine.usage_context not in USAGE_CONTEXTS:
        return {}
    preset = option_file("engine", engine.name)
    rule = batch_defaults(load_gpu(saved.cluster.gpu), engine.usage_context)
    return {
        name: UNSET
        for name, value in rule.items()
        if preset[name] == UNSET and getattr(engine, name) == value
    }


def _terms_follow_version(saved: RunConfig) -> bool:
    """Whether overhead and front end are those that the engine's preset leaves to its version."""
    engine = saved.engine
    if engine.name not in option_groups()["engine"]:
        return False
    if option_file("engine", engine.name)["overhead"]["source"] != UNSET:
        return False
    known = engine_terms(engine.software, engine.version)
    return all(
        getattr(getattr(engine, section), name) == value
        for section, values in known.items()
        for name, value in values.items()
    )


def _referenced_keys(batcher: PolicyConfig) -> dict[str, str]:
    """Map the batcher's parameters that are references to the referenced key."""
    return {name: key for name, key in POLICY_GROUPS["batcher"].follows.items() if name in batcher.params}
