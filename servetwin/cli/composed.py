"""Prints what a run would be, without running it: ``--cfg job`` and ``--info``."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import telling
from servetwin.config.config import Kind, RunConfig
from servetwin.config.overrides import Wanted, closest, echo
from serving.vocabulary.errors import UserError

_HEADINGS: Final = {
    "defaults": "Options", "searchpath": "Folders", "plugins": "Launchers and installed policies"
}  # fmt: skip
_UNSET: Final = "???"  # how Hydra shows a value that must be given


def print_configuration(words: Sequence[str], kind: Kind, package: str) -> None:
    """Print the text of the run's config.yaml, or one part of it: ``engine``, ``system.dispatch``."""
    import yaml

    from servetwin.config.compose.resolved import resolved_yaml

    words, as_json = asked_for_json(words)
    text = resolved_yaml(_composed(words, kind))
    data = _part(yaml.safe_load(text), package)
    if as_json:
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    elif package:
        dumped = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
        text = f"# @package {package}\n{dumped}"
    with telling():
        print(text, end="")


def _composed(words: Sequence[str], kind: Kind) -> RunConfig:
    """Return the run's configuration as the run composes it; ``out`` may be missing."""
    from servetwin.config.compose.compose import load_config

    words = list(words)
    if kind == "realexec":
        from servetwin.cli.own_keys import split_own
        from servetwin.cli.real_run import REPEAT, with_servers

        words = with_servers(split_own(words, {REPEAT: Wanted(int)})[1])
    out = [] if any(word.startswith("out=") for word in words) else [f"out={_UNSET}"]
    return load_config([*words, *out], kind, alone=True)


def _part(data: Any, package: str) -> Any:
    value = data
    for part in package.split(".") if package else ():
        if not isinstance(value, dict) or part not in value:
            owner = package.rpartition(".")[0]
            known = _part(data, owner) if owner and part == package.rpartition(".")[2] else data
            near = closest(part, known) if isinstance(known, dict) else None
            raise UserError(
                f"--package {echo(package)} is no part of the configuration: write "
                f"{near or ', '.join(key for key in data if isinstance(data[key], dict))}"
            )
        value = value[part]
    return value


def print_information(words: Sequence[str], kind: Kind, what: str) -> None:
    """Print what a run is composed of: options with their files, searched folders, what is installed."""
    words, as_json = asked_for_json(words)
    config = _composed(words, kind)
    parts = {
        "defaults": _chosen_options(config, kind),
        "searchpath": _searched(),
        "plugins": _installed(),
    }
    name = "defaults" if what == "defaults-tree" else what
    shown = {part: about for part, about in parts.items() if name in ("all", part)}
    with telling():
        if as_json:
            print(json.dumps(shown, indent=1, ensure_ascii=False))
        else:
            lines = [line for part, about in shown.items() for line in _lines(part, about, what)]
            print("\n".join(lines), end="\n" if lines else "")
    if name in ("all", "config") and not as_json:
        print_configuration(words, kind, "")


def _chosen_options(config: RunConfig, kind: Kind) -> dict[str, str]:
    """Map ``group=option`` to its file."""
    from servetwin.config.compose.value_of import value_of
    from servetwin.config.options import CONF_DIR, option_groups, path_of_option

    chosen: dict[str, str] = {kind: str(CONF_DIR / f"{kind}.yaml")}
    for group in option_groups():
        option = str(value_of(config, group))
        path = path_of_option(group, option)
        chosen[f"{group}={option}"] = str(path) if path.is_file() else "made from its name, without a file"
    return chosen


def _searched() -> dict[str, str]:
    """Map every folder that options, traces and profiles are searched in to what is found there."""
    from servetwin.config.options import CONF_DIR, FOLDERS_VARIABLE, SWEEPS, own_folders

    places = {str(CONF_DIR): "options", str(CONF_DIR / SWEEPS): "files of servetwin sweep sweep=NAME"}
    places |= {
        str(folder): f"options of yours ({FOLDERS_VARIABLE}, --config-dir)" for folder in own_folders()
    }
    for variable, found in (("SERVETWIN_TRACES", "recorded traces"), ("SERVETWIN_PROFILES", "profiles")):
        names = filter(None, os.environ.get(variable, "").split(os.pathsep))
        places |= dict.fromkeys(names, f"{found} ({variable})")
    return places


def _installed() -> dict[str, str]:
    """Map what comes from installed packages, and the launchers, to the word that chooses it."""
    from servetwin.config.policy.installed import installed_names

    policies = {name: f"system/GROUP={name}" for name in installed_names()}
    launchers = {name: f"servetwin sweep launcher={name}" for name in ("local", "ray", "slurm")}
    return policies | launchers | {"optuna": "servetwin sweep search.minimize=METRIC"}


def _lines(part: str, about: Mapping[str, str], what: str) -> Iterator[str]:
    """Yield a heading, and a line per entry; in a tree those of ``system/`` stand below ``system``."""
    yield _HEADINGS[part]
    ordered = sorted(about, key=_place_in_tree) if what == "defaults-tree" else list(about)
    shown = {word: "  " * _depth(word, what) + word for word in ordered}
    wide = max(map(len, shown.values()), default=0)
    for word, text in shown.items():
        yield f"  {text:<{wide}}  {about[word]}"
    yield ""


def _place_in_tree(word: str) -> tuple[bool, str, bool, str]:
    """Return where an option stands: the file that a run begins with is first and has no ``=``."""
    top, slash, _ = word.partition("=")[0].partition("/")
    return "=" in word, top, bool(slash), word


def _depth(word: str, what: str) -> int:
    return (("=" in word) + ("/" in word.partition("=")[0])) if what == "defaults-tree" else 0
