"""The words of ``servetwin traces VERB TRACE key=value ...``: one trace, its changes, and other keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.config.key import check_declared
from servetwin.config.overrides import Wanted, closest, echo, leaves, parse_value, parse_words
from servetwin.config.trace_config import DEFAULTS, TraceConfig, check_trace
from servetwin.config.trace_options import (
    default_parameters,
    drop_default_requests,
    trace_names,
    trace_parameters,
    wanted_parameter,
)
from serving.vocabulary.errors import UserError
from traces.find import FILE
from traces.synthetic.registry import SYNTHETIC

_NEED_A_CLUSTER: Final = ("utilization", "prefill_share", "peak_share")
LITERAL: Final = frozenset({"path", "out", "plot", "folder", "json"})


@dataclass(frozen=True, slots=True)
class TraceWords:
    """trace: the trace's configuration, as in a run. seed: the seed of all random draws.

    other: the verb's own keys in the words, with parsed values.
    """

    trace: TraceConfig
    seed: int
    other: Mapping[str, Any]


def trace_words(verb: str, words: Sequence[str], own: Mapping[str, Wanted], changes: bool) -> TraceWords:
    """Parse ``TRACE key=value ...``, TRACE a name or a file's path. own: further keys. changes: whether
    to accept the transformations of a run. Raises UserError naming the word."""
    if not words or "=" in words[0]:
        raise UserError(f"servetwin traces {verb} lacks a trace: write a name or a file's path after {verb}")
    name, path = named(words[0])
    keys = {**_keys(name, changes), **own}
    values: dict[str, Any] = {}
    for word in parse_words([f"trace.{word}" if word.startswith("path=") else word for word in words[1:]]):
        key = word.key.removeprefix("trace.")
        if key not in keys:
            raise _unknown(verb, key, name, keys)
        values[key] = parse_value(word, keys[key]) if key not in LITERAL else word.text
    return TraceWords(
        _trace(name, path, values), values.get("seed", 0), {k: values[k] for k in own if k in values}
    )


def named(word: str) -> tuple[str, str | None]:
    """Return (trace name, path): a known name, or any other word as the path of a file."""
    if word in trace_names() and word != FILE:
        return word, None
    if not Path(word).expanduser().exists() and not any(mark in word for mark in "./"):
        near = closest(word, trace_names())
        hint = f"{near} if that is meant" if near else f"one of {', '.join(trace_names())}"
        raise UserError(f"there is no trace and no file {echo(word)}: write {hint}, or a file's path")
    return FILE, word


def _keys(name: str, changes: bool) -> dict[str, Wanted]:
    shared = {key: wanted for key, wanted in leaves(TraceConfig).items() if key in DEFAULTS}
    if not changes:
        shared = {key: shared[key] for key in ("path", "format")}
    for key in _NEED_A_CLUSTER:
        shared.pop(key, None)
    parameters = {parameter: wanted_parameter(name, parameter) for parameter in trace_parameters(name)}
    return shared | parameters | {"seed": Wanted(int)}


def _trace(name: str, path: str | None, values: Mapping[str, Any]) -> TraceConfig:
    params = default_parameters(name)
    params |= {key: values[key] for key in params if key in values}
    drop_default_requests(params, {key for key, value in values.items() if value is not None})
    settings = DEFAULTS | {key: values[key] for key in DEFAULTS if key in values and key not in params}
    if path is not None:
        settings["path"] = path
    trace = TraceConfig(name=name, synthetic=name in SYNTHETIC, params=params, **settings)
    check_declared(trace)
    check_trace(trace)
    return trace


def _unknown(verb: str, key: str, name: str, keys: Mapping[str, Wanted]) -> UserError:
    if key in _NEED_A_CLUSTER:
        return UserError(
            f"{key} needs a cluster to be a share of: write servetwin simulate trace.{key}=VALUE"
        )
    near = closest(key, keys)
    hint = f"{near}=VALUE if that is meant" if near else f"one of {', '.join(sorted(keys))}"
    return UserError(f"unknown key '{echo(key)}' for servetwin traces {verb} {name}: write {hint}")
