"""What is declared of the keys of a run, as help for one key and as the tables of pages (CONFIGURATION)."""

import re
from dataclasses import MISSING
from typing import Any, Final

from servetwin.config.compose.compose import MISSING as UNSET
from servetwin.config.compose.compose import defaults
from servetwin.config.config import Kind, RunConfig
from servetwin.config.key import DeclaredKey, declared_keys
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import Wanted, leaves
from servetwin.config.readers import MODELS_THAT_DECODE, REAL_WORKERS
from servetwin.config.server_flags import names_of
from servetwin.config.unknown_key import unknown_key
from serving.vocabulary.errors import UserError

_OTHER_ENGINE: Final = "vllm_v0"  # beside vllm_v1, the default, in the tables


def shown(value: object) -> str:
    """Return a value as the user would write it; VALUE for one that must be given."""
    if value is None:
        return "null"
    if value == UNSET:
        return "VALUE"
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_help(word: str, kind: Kind) -> str:
    """Return what is declared of a key, of all keys that begin with a group's name, or of a group of options.

    Of a policy's parameter: its defaults by option. UserError for any other word.
    """
    known, values = declared_keys(RunConfig), defaults(kind)
    paths = [path for path in known if path == word or path.startswith(word.rstrip(".") + ".")]
    if paths := [path for path in paths if path in values]:
        return "\n\n".join(_help_of(known[path], *values[path]) for path in paths) + "\n"
    if word in option_groups():
        return f"{word}=OPTION\n  one of {', '.join(option_groups()[word])}\n"
    if found := _parameter_defaults(word):
        lines = [f"  {option}: {shown(value)}" for option, value in found.items()]
        return "\n".join([f"{word}: a parameter of policies, with this default", *lines, ""])
    if word.startswith("trace."):
        raise UserError(
            f"'{word}' is no key of all traces, and may be a parameter of one: see docs/reference/TRACES.md, "
            "or write --help trace for the keys of all"
        )
    raise unknown_key(word, [*values, *option_groups()], kind)


def _parameter_defaults(word: str) -> dict[str, Any]:
    """Return option -> default of a parameter ``system.GROUP.NAME`` of its policies."""
    top, _, name = word.rpartition(".")
    group = top.replace(".", "/")
    if not group.startswith("system/") or group not in option_groups():
        return {}
    files = {option: option_file(group, option) for option in option_groups()[group]}
    params = {option: file.get("params") or {} for option, file in files.items()}
    return {option: own[name] for option, own in params.items() if name in own}


def _help_of(declared: DeclaredKey, default: Any, wanted: Wanted) -> str:
    key = declared.key
    lines = [f"{declared.path}={shown(default)}", declared.text]
    if not key.choices:
        within = "" if key.within is None else f" {key.within}"
        lines.append(f"{wanted}{within}")
    else:
        lines.append(f"one of {', '.join(key.choices)}{' or null' if wanted.optional else ''}")
    if key.options:
        group = declared.path.rpartition(".")[0]
        lines.append(f"with {' or '.join(f'{group}={option}' for option in key.options)}")
    lines += [f"read only by {reader.of}" for reader in declared.read_by]
    if names := (*names_of(declared.path), *key.also):
        lines.append(f"also known as {', '.join(names)}")
    return "\n  ".join(lines)


def key_table(group: str) -> str:
    """Return the Markdown table of a group's keys.

    Keys without a group: ``run``, and ``realexec`` those that only real runs have.
    """
    rows, readers = ["|key|default|values|meaning|", "|---|---|---|---|"], dict[str, list[str]]()
    for path, declared in declared_keys(RunConfig).items():
        if _group(declared) != group or path.endswith((".name", ".source", ".policy")):
            continue
        if row := _row(declared):
            rows.append(row)
            for reader in declared.key.read_by:
                if reader not in (MODELS_THAT_DECODE, REAL_WORKERS):
                    readers.setdefault(reader.of, []).append(f"`{path.removeprefix(f'{group}.')}`")
    told = [f"* {of}: {', '.join(keys)}" for of, keys in readers.items()]
    return "\n".join([*rows, *(["", "Read only by", "", *told] if told else [])])


def _group(declared: DeclaredKey) -> str:
    """Return the table that a key stands in: the tables of small groups are one with that of the run."""
    top, _, rest = declared.path.partition(".")
    if top == "system":
        part = rest.partition(".")[0]
        return f"system.{part}" if part in ("instances", "signals") else "system"
    if rest and top not in ("series", "driver", "ray", "http", "metrics"):
        return top
    return "realexec" if _of_real_runs(declared) else "run"


def _of_real_runs(declared: DeclaredKey) -> bool:
    return declared.kind == "realexec" or REAL_WORKERS in declared.read_by


def _row(declared: DeclaredKey) -> str:
    """Return the row of a key; empty for one that nobody can set."""
    if (default := _default_cell(declared)) is None:
        return ""
    meaning = declared.key.meaning
    if _of_real_runs(declared) and _group(declared) != "realexec":
        meaning = f"real runs only: {meaning}"
    return f"|`{declared.path}`|{default}|{_values(declared, default)}|{meaning}|"


def _values(declared: DeclaredKey, default: str) -> str:
    """Return what the default and the meaning do not show: choices, a range, an integer, null."""
    key, wanted = declared.key, leaves(RunConfig)[declared.path]
    told = re.findall(r"`([^`]+)`", key.meaning)
    if key.choices:
        return "" if set(key.choices) <= set(told) else ", ".join(f"`{choice}`" for choice in key.choices)
    words = ["integer"] if wanted.type is int else []
    words += [] if key.within is None else [key.within.signs]
    if not words and wanted.type is float:
        words = ["number"]
    nullable = wanted.optional and "null" not in f"{default} {key.meaning}"
    return " ".join(words) + (", null" if words and nullable else "null" if nullable else "")


def _default_cell(declared: DeclaredKey) -> str | None:
    """Return the defaults by option and kind of run; None for a key that nobody can set."""
    path, key = declared.path, declared.key
    group, _, name = path.rpartition(".")
    if key.options:
        values = {option: option_file(group, option).get(name, declared.default) for option in key.options}
        same = dict[str, list[str]]()
        for option, value in values.items():
            same.setdefault(shown(value), []).append(f"`{option}`")
        return "; ".join(f"{', '.join(options)} {value}" for value, options in same.items())
    simulated, real = defaults("simulate").get(path), defaults("realexec").get(path)
    if (first := simulated or real) is None:
        return None
    cell = "required" if path == "out" else _code(first[0])
    if declared.default is MISSING and path.startswith("engine.max_num_"):
        cell = "by GPU"
    if path.startswith("engine.") and (other := _engine_value(path)) is not None and _code(other) != cell:
        cell += f"; `{_OTHER_ENGINE}` {_code(other)}"
    if simulated is not None and real is not None and real[0] != simulated[0]:
        cell += f"; real runs {_code(real[0])}"
    return cell


def _engine_value(path: str) -> Any:
    value: Any = option_file("engine", _OTHER_ENGINE)
    for part in path.split(".")[1:]:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _code(value: object) -> str:
    text = shown(value)
    return f"`{text}`" if isinstance(value, str) else text
