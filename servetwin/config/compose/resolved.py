"""Converts a resolved configuration to ``config.yaml`` and back, every key present and of its type."""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from servetwin.config.compose.checks import check
from servetwin.config.config import ANY_DRIVER, EXPECTED_NEW_TOKENS, FLOAT32, STAY, RunConfig
from servetwin.config.faults_config import NO_FAULTS
from servetwin.config.http_config import NO_METRICS, NO_SERVERS, WORKERS
from servetwin.config.migration_config import LIVE
from servetwin.config.models_config import ONE
from servetwin.config.overrides import checked_value, echo, is_too_long, wanted_by
from servetwin.config.pipeline_config import PLAIN
from servetwin.config.policy.saved import check_policies
from servetwin.config.read_file import yaml_in
from servetwin.config.renamed import refuse_renamed_in
from servetwin.config.series_config import NO_SERIES
from servetwin.config.swapping import RECOMPUTE, SWAP_SPACE_GIB
from servetwin.config.trace_config import NO_RESAMPLING, OPEN_LOOP
from servetwin.config.uncertainty_config import OFF
from servetwin.config.vllm_defaults import USAGE_CONTEXTS
from servetwin.config.workers_config import CPU, NO_RAY
from serving.vocabulary.errors import UserError

_OF_WORKERS: Final[dict[str, Any]] = {
    "launcher": "local",
    "ray": dataclasses.asdict(NO_RAY),
    "device": CPU,
    "world": WORKERS,
    "http": dataclasses.asdict(NO_SERVERS),
    "metrics": dataclasses.asdict(NO_METRICS),
    "log": None,
}
_SELDOM_POLICIES: Final = ("migration", "stages")
# Where a saved run's policies were, and are now.
_MOVED: Final = ("experiments.build.", "servetwin.assemble.")
_HEADER = "# The resolved configuration of a ServeTwin run: nothing is left to defaults.\n"


def resolved_yaml(config: RunConfig) -> str:
    """Return ``config.yaml``: every value of the run; ``load_resolved`` reads it to an equal RunConfig."""
    data = dataclasses.asdict(config)
    if config.workers is None:
        del data["workers"]
    if config.transport is None:
        del data["transport"]
    for key, plain in _OF_WORKERS.items():
        if data[key] == plain:
            del data[key]
    if config.models == ONE:
        del data["models"]
    if config.series == NO_SERIES:
        del data["series"]
    if config.faults == NO_FAULTS:
        del data["faults"]
    if config.driver == ANY_DRIVER:
        del data["driver"]
    if config.migration == LIVE:
        del data["migration"]
    else:
        for key in ("into_loading", "slowdown"):
            if getattr(config.migration, key) == getattr(LIVE, key):
                del data["migration"][key]
    if config.pipeline == PLAIN:
        del data["pipeline"]
    for group in _SELDOM_POLICIES:
        if getattr(config.system, group) == STAY:
            del data["system"][group]
    if config.trace.resample is None:
        for key in NO_RESAMPLING:
            del data["trace"][key]
    if config.trace.clients is None:
        for key in OPEN_LOOP:
            del data["trace"][key]
    elif not config.trace.client_start_s:
        del data["trace"]["client_start_s"]
    if config.model.checkpoint is None:
        del data["model"]["checkpoint"]
    if config.model.dtype == FLOAT32:
        del data["model"]["dtype"]
    if config.uncertainty == OFF:
        del data["uncertainty"]
    if config.engine.usage_context == USAGE_CONTEXTS[0]:
        del data["engine"]["usage_context"]
    if config.engine.preemption == RECOMPUTE:
        del data["engine"]["preemption"], data["engine"]["swap_space_gib"]
    if config.engine.overhead.error_s is None:
        del data["engine"]["overhead"]["error_s"]
    if config.engine.max_model_len is None:
        del data["engine"]["max_model_len"]
    if config.engine.expected_new_tokens == EXPECTED_NEW_TOKENS:
        del data["engine"]["expected_new_tokens"]
    # YAML reads some unprintable characters back as others, unless all non-ASCII characters are escaped.
    paths = (config.out, config.trace.path, config.engine.profile, config.model.checkpoint)
    as_it_is = "".join(path or "" for path in paths).isprintable()
    return _HEADER + str(yaml.safe_dump(data, sort_keys=False, allow_unicode=as_it_is, width=1000))


def load_resolved(path: Path | str, named: Mapping[str, str] | None = None) -> RunConfig:
    """Return the RunConfig in a result folder's ``config.yaml``; UserError if the file is not one.

    ``named``: the policies that the command line names (``system/dispatch`` -> ``module:Class``); the file
    alone may name only those of this package and installed ones (``saved_policies``).
    """
    config = read_resolved(path)
    check_policies(config.system, named or {}, str(path))
    check(config)
    return config


def read_resolved(path: Path | str) -> RunConfig:
    """Read the file, every key present and of its type, without checking it against anything else."""
    try:
        data = yaml_in(Path(path), aliases=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): give the config.yaml of a result folder"
        ) from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not YAML ({reason}): give the config.yaml of a result folder") from error
    if isinstance(data, dict):
        data.setdefault("workers", None)
        data.setdefault("transport", None)
        data = _OF_WORKERS | data
        data.setdefault("models", dataclasses.asdict(ONE))
        data.setdefault("series", dataclasses.asdict(NO_SERIES))
        data.setdefault("faults", dataclasses.asdict(NO_FAULTS))
        if isinstance(data["faults"], dict):
            data["faults"].setdefault("notice_s", None)
        data.setdefault("driver", dataclasses.asdict(ANY_DRIVER))
        data.setdefault("migration", dataclasses.asdict(LIVE))
        if isinstance(data["migration"], dict):
            later = {key: getattr(LIVE, key) for key in ("victims", "reserve", "into_loading", "slowdown")}
            data["migration"] = later | data["migration"]
        data.setdefault("pipeline", dataclasses.asdict(PLAIN))
        data.setdefault("uncertainty", OFF)
        if isinstance(data.get("trace"), dict):
            # All clients of earlier versions began at once.
            at_once = {} if data["trace"].get("clients") is None else {"client_start_s": 0.0}
            data["trace"] = NO_RESAMPLING | OPEN_LOOP | at_once | data["trace"]
        if isinstance(data.get("system"), dict):
            for policy in data["system"].values():
                if isinstance(policy, dict) and isinstance(name := policy.get("policy"), str):
                    policy["policy"] = name.replace(*_MOVED) if name.startswith(_MOVED[0]) else name
            for group in _SELDOM_POLICIES:
                data["system"].setdefault(group, dataclasses.asdict(STAY))
        if isinstance(data.get("model"), dict):
            data["model"].setdefault("checkpoint", None)
            data["model"].setdefault("dtype", FLOAT32)
        if isinstance(data.get("engine"), dict):
            data["engine"].setdefault("usage_context", USAGE_CONTEXTS[0])
            data["engine"].setdefault("max_model_len", None)
            data["engine"].setdefault("preemption", RECOMPUTE)
            data["engine"].setdefault("swap_space_gib", SWAP_SPACE_GIB)
            data["engine"].setdefault("expected_new_tokens", EXPECTED_NEW_TOKENS)
            if isinstance(data["engine"].get("overhead"), dict):
                data["engine"]["overhead"].setdefault("error_s", None)
    try:
        if isinstance(data, dict):
            refuse_renamed_in(data, str(path))
        config: RunConfig = built(RunConfig, data, "", str(path))
    except UserError as error:
        raise UserError(f"{error}; or use the file with the version of ServeTwin that wrote it") from None
    return config


def built(config_class: type, data: Any, prefix: str, source: str) -> Any:
    """Build ``config_class`` from plain data, every key present and typed; UserError naming the key."""
    hints = typing.get_type_hints(config_class)
    if not isinstance(data, dict):
        where = f"{prefix.rstrip('.')} in {source}" if prefix else source
        raise UserError(f"{where} is not a mapping: write the keys {', '.join(hints)} under it")
    for key in data:
        if key not in hints:
            raise UserError(f"unknown key {prefix}{key} in {source}: write only {', '.join(hints)}")
    values = {}
    for name, hint in hints.items():
        if name not in data:
            raise UserError(f"{prefix}{name} is missing in {source}: write {prefix}{name} with its value")
        if dataclasses.is_dataclass(hint):
            values[name] = built(typing.cast(type, hint), data[name], f"{prefix}{name}.", source)
        elif name == "params":
            values[name] = _parameters(data[name], f"{prefix}{name}", source)
        else:
            values[name] = checked_value(data[name], wanted_by(hint), f"{prefix}{name}", source)
    return config_class(**values)


def _parameters(data: Any, key: str, source: str) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise UserError(
            f"{key} in {source} is not a mapping: write a mapping of parameter names to values, or {{}}"
        )
    for name, value in data.items():
        if not all(map(_is_plain, listed(value))):
            raise UserError(
                f"{key}.{echo(name)} in {source} is no plain value: write a number, a word, true, false, "
                "null or a list of these"
            )
    return dict(data)


def _is_plain(value: Any) -> bool:
    return value is None or (type(value) in (int, float, bool, str) and not is_too_long(value))


def listed(value: Any) -> list[Any]:
    """Return the items of a list, or a list of the single value."""
    return value if isinstance(value, list) else [value]
