"""Translates what users of Hydra write into the words of this program, or says which word does it here.

Only Hydra's own notation is touched: its flags (``-m``, ``--cfg job``), ``+key=``, ``++key=``, ``~key``,
``group@package=``, and the keys of its own configuration (``hydra.sweep.dir=``, ``hydra/launcher=``).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servetwin.cli.flags import OWN_FLAGS
from servetwin.cli.foreign_flags import refuse_flags
from servetwin.config.config import Kind
from servetwin.config.options import FOLDERS_VARIABLE
from servetwin.config.overrides import echo
from serving.vocabulary.errors import UserError

# Commands that compose runs from key=value words, with the kind of their runs.
COMPOSING: Final[Mapping[str, Kind]] = {
    "simulate": "simulate", "sweep": "simulate", "plan": "simulate", "run": "realexec",
    "advise": "simulate",
    "observe": "realexec", "calibrate": "realexec", "random-checkpoint": "realexec", "fidelity": "realexec",
}  # fmt: skip
_READ_OPTIONS: Final = (*COMPOSING, "support", "replay", "completion")
_ONE_RUN: Final = ("simulate", "run")
_KEY: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z_][A-Za-z0-9_]*)*"
_ADDED: Final = re.compile(rf"\+{{1,2}}({_KEY}(?:@[^=]*)?=.*)", re.DOTALL)
_REMOVED: Final = re.compile(rf"~({_KEY})(?:=(.*))?", re.DOTALL)
_PLACED: Final = re.compile(rf"({_KEY})@([^=]*)=(.*)", re.DOTALL)
_OF_HYDRA: Final = re.compile(r"~?hydra[./][^=]*(?:=.*)?", re.DOTALL)
_NOWHERE: Final[Mapping[str, str]] = {"models": "one"}  # the option without any; "none" of other groups

# Hydra's flag -> its short form, and how many values follow it ("?": one if it is one of those it knows).
FLAGS: Final[Mapping[str, tuple[str, str]]] = {
    "--help": ("-h", "0"), "--hydra-help": ("", "0"), "--version": ("", "0"), "--cfg": ("-c", "1"),
    "--resolve": ("", "0"), "--package": ("-p", "1"), "--run": ("-r", "0"), "--multirun": ("-m", "0"),
    "--shell-completion": ("-sc", "0"), "--config-path": ("-cp", "1"), "--config-name": ("-cn", "1"),
    "--config-dir": ("-cd", "1"), "--experimental-rerun": ("", "1"), "--info": ("-i", "?"),
}  # fmt: skip
_LONG: Final = {short: flag for flag, (short, _) in FLAGS.items() if short}
INFO: Final = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_CFG: Final = ("job", "hydra", "all")
# Every flag of this program, and how many values follow it; those that servers have too, with a pattern of
# the values that make them a server's.
_OURS: Final = (
    {word: count for flag, (short, count) in FLAGS.items() for word in (flag, short) if word}
    | dict.fromkeys(OWN_FLAGS, "0")
)  # fmt: skip
_SHARED: Final = {"-q": r"[^-=]+", "-r": r"\d+", "-sc": r"\{.*"}
# Keys of Hydra's own configuration that have a key here in a sweep.
_OF_SWEEPS: Final[Mapping[str, str]] = {
    "hydra.sweep.dir": "out", "hydra.launcher.n_jobs": "processes", "hydra.sweeper.n_trials": "search.trials",
    "hydra.launcher.partition": "slurm.partition", "hydra.launcher.array_parallelism": "slurm.jobs",
}  # fmt: skip
_LAUNCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "basic": ("processes=1",), "joblib": ("launcher=local",), "ray": ("launcher=ray",),
    "submitit_slurm": ("launcher=slurm",), "submitit_local": ("launcher=slurm", "slurm.cluster=local"),
}  # fmt: skip
_PARAMS: Final = "hydra.sweeper.params."
_TRIALS: Final = ("hydra.sweeper.n_trials=", "search.trials=")
_SEARCH: Final = "a search: write search.minimize=ttft_ms.p99 (or search.maximize=METRIC) search.trials=40"
# How a key of Hydra's own configuration begins -> what to write here.
_INSTEAD: Final[Mapping[str, str]] = {
    "hydra.sweep.subdir": "a sweep names its runs: write folders=true to keep them in out/runs",
    "hydra.output_subdir": "a run writes config.yaml into its folder: write out=FOLDER",
    "hydra.sweeper.direction": f"it belongs to {_SEARCH}",
    "hydra/sweeper": f"Optuna is the only sampler of {_SEARCH}",
    "hydra.sweeper": f"lists and ranges need no sweeper (KEY=A,B), and for {_SEARCH}",
    "hydra/launcher": "write processes=N, launcher=local|ray|slurm, slurm.jobs=N or slurm.partition=NAME",
    "hydra.launcher": "write processes=N, launcher=local|ray|slurm, slurm.jobs=N or slurm.partition=NAME",
    "hydra.job.env_set": "set a variable of the environment before the command: NAME=VALUE servetwin ...",
    "hydra.job.chdir": "runs stay in the current folder: write out=FOLDER for their results",
    "hydra.job": "a run is named by its folder: write out=FOLDER",
    "hydra.run": "write out=FOLDER",
    "hydra.sweep": "write out=FOLDER",
    "hydra/job_logging": "write -q (only errors) or -v (tracebacks), or log=json in a real run",
    "hydra/hydra_logging": "write -q (only errors) or -v (tracebacks), or log=json in a real run",
    "hydra.job_logging": "write -q (only errors) or -v (tracebacks), or log=json in a real run",
    "hydra.hydra_logging": "write -q (only errors) or -v (tracebacks), or log=json in a real run",
    "hydra.verbose": "write -v for tracebacks",
    "hydra/help": "write --help, or --help KEY",
    "hydra.help": "write --help, or --help KEY",
    "hydra.searchpath": "write --config-dir DIR for a folder of option files",
}
_SWEEP: Final = "write servetwin sweep KEY=A,B out=DIR, or leave it out"
_UNUSED: Final = "leave it out; write servetwin --hydra-help for Hydra's words and those here"
_SWEEPING: Final = ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.sweep")


@dataclass(slots=True)
class Translated:
    """A command in this program's words.

    ``show``: what is printed instead of a run: ``help``, ``cfg`` or ``info``; "" for a run. ``part``: of it.
    """

    command: str
    words: list[str] = field(default_factory=list)
    show: str = ""
    part: str = ""

    @property
    def kind(self) -> Kind:
        """Return the kind of the command's runs."""
        return COMPOSING[self.command]


def in_own_words(name: str, command: str, words: Sequence[str]) -> Translated:
    """Return the command that Hydra's notation in ``words`` means here.

    ``name``: servetwin or realexec. UserError, which names the word that
    does it here, for what has no meaning.
    """
    if command in COMPOSING:
        refuse_flags(words, _OURS, _SHARED, COMPOSING[command])
    given, rest = _flags_of(words)
    found = Translated(command)
    if {"--multirun", "hydra.mode=MULTIRUN"} & {*given, *rest}:
        found.command = _many(command, "--run" in given)
    elif "--run" in given and command not in _ONE_RUN:
        raise UserError(f"--run is of single runs: write servetwin simulate, or leave it out of {command}")
    for flag, value in given.items():
        _refuse_flag(flag, value, command)
    if "--config-dir" in given:
        _add_folder(Path(given["--config-dir"]), command)
    _show(found, given, name)
    if found.command == "completion":
        found.words = _shells(rest)
    elif found.command != "--version":
        found.words = list(_translated(rest, found))
    return found


def _flags_of(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return Hydra's flags with their values, and the other words. UserError for a flag without its value."""
    given, rest = dict[str, str](), list[str]()
    following = list(words)
    while following:
        word = following.pop(0)
        start, equals, value = word.partition("=")
        flag = _LONG.get(start, start)
        if flag not in FLAGS or flag == "--help":  # every command has its own help
            rest.append(word)
            continue
        count = FLAGS[flag][1]
        if not equals and following and (count == "1" or (count == "?" and following[0] in INFO)):
            value = following.pop(0)
        if count == "1" and not value:
            raise UserError(f"{start} has no value: write {start} VALUE, or see servetwin --hydra-help")
        given[flag] = value
    return given, rest


def _many(command: str, one: bool) -> str:
    """Return the command that runs many times what ``command`` runs once."""
    if one:
        raise UserError("--run is one run and --multirun many: write one of the two")
    if command in ("simulate", "sweep", "plan", "advise"):
        return {"simulate": "sweep"}.get(command, command)
    if command in COMPOSING:
        raise UserError(
            "--multirun is of simulations, since real runs share this machine: write repeat=N for the same "
            "real run several times, or servetwin sweep KEY=A,B out=DIR"
        )
    raise UserError(f"--multirun is of runs, and {command} runs nothing: {_SWEEP}")


def _refuse_flag(flag: str, value: str, command: str) -> None:
    """Refuse flags that have no meaning here, naming the word that does what they are for."""
    if flag in ("--config-path", "--config-name"):
        raise UserError(
            f"{flag} {echo(value)}: each command begins with a file of its own; write config=DIR to begin "
            "with the configuration of an earlier run, or --config-dir DIR for option files of yours"
        )
    if flag == "--experimental-rerun":
        raise UserError(
            f"{flag} {echo(value)}: a run keeps its configuration in config.yaml; write config=DIR with the "
            "out= of that run"
        )
    if flag in ("--cfg", "--info") and command not in _ONE_RUN:
        shown = {"--cfg": "--cfg job"}.get(flag, flag)
        raise UserError(f"{flag} shows one run's configuration: write servetwin simulate KEY=VALUE {shown}")


def _add_folder(folder: Path, command: str) -> None:
    """Add a folder of option files for this process and those that it starts."""
    if command not in _READ_OPTIONS:
        raise UserError(
            f"--config-dir adds options of runs, and {command} reads none: write it behind servetwin simulate"
        )
    if not folder.expanduser().is_dir():
        example = "write one with files such as cluster/NAME.yaml"
        raise UserError(f"--config-dir {echo(str(folder))} is no folder: {example}")
    before = os.environ.get(FOLDERS_VARIABLE)
    names = [*([before] if before else []), str(folder.expanduser().resolve())]
    os.environ[FOLDERS_VARIABLE] = os.pathsep.join(names)


def _show(found: Translated, given: Mapping[str, str], name: str) -> None:
    """Set what is printed in place of a run."""
    if "--version" in given:
        found.command = "--version"
    elif "--hydra-help" in given:
        found.show = "help"
    elif "--shell-completion" in given:
        found.command = "completion"
    elif "--cfg" in given:
        if given["--cfg"] not in _CFG:
            raise UserError(f"--cfg {echo(given['--cfg'])} is unknown: write --cfg job")
        if given["--cfg"] == "hydra":
            raise UserError(
                "--cfg hydra: nothing of Hydra's own is configured here; write --cfg job for the run's "
                f"configuration, or {name} --hydra-help for the words of sweeps and launchers"
            )
        if found.command == "sweep":
            raise UserError("--cfg shows one run: leave -m out, and write one value of each key")
        found.show, found.part = "cfg", given.get("--package", "")
    elif "--info" in given:
        if given["--info"] not in ("", *INFO):
            raise UserError(f"--info {echo(given['--info'])} is unknown: write one of {', '.join(INFO)}")
        found.show, found.part = "info", given["--info"] or "all"
    elif "--package" in given:
        raise UserError("--package belongs to --cfg: write servetwin simulate --cfg job --package engine")
    elif "--resolve" in given:
        raise UserError("--resolve belongs to --cfg: write servetwin simulate --cfg job, which resolves all")


def _shells(words: Iterable[str]) -> list[str]:
    """Return the shell of ``install=bash``."""
    for word in words:
        verb, _, shell = word.partition("=")
        if verb in ("query", "uninstall"):
            raise UserError(
                f"{echo(word)}: write 'complete -r servetwin' in the shell to remove completion, or "
                "servetwin completion bash"
            )
        if verb == "install":
            return [shell]
    return []


def _translated(words: Sequence[str], found: Translated) -> Iterator[str]:
    """Yield the words in this program's notation."""
    for word in words:
        added = _ADDED.fullmatch(word)
        plain = added[1] if added else word
        removed = _REMOVED.fullmatch(word) if found.command in COMPOSING else None
        if _OF_HYDRA.fullmatch(plain):
            yield from _of_hydra(plain, found.command, words)
        elif removed:
            others = [other for other in words if other is not word and other not in OWN_FLAGS]
            yield _without(word, removed[1], removed[2], found, others)
        elif placed := _PLACED.fullmatch(plain):
            yield _at_its_place(plain, placed[1], placed[2], placed[3])
        else:
            yield plain


def _at_its_place(word: str, group: str, place: str, option: str) -> str:
    """Return ``group=option`` of ``group@package=option``; a group's options have one place here."""
    if place not in ("_global_", group.replace("/", ".")):
        raise UserError(
            f"'{echo(word)}' would put an option at '{echo(place)}', and options of {group} have one place: "
            f"write {group}={echo(option)}"
        )
    return f"{group}={option}"


def _without(word: str, key: str, text: str | None, found: Translated, others: Sequence[str]) -> str:
    """Return the word that sets a key to no value, or a group to no option."""
    from servetwin.config.config import RunConfig
    from servetwin.config.options import option_groups
    from servetwin.config.overrides import leaves
    from servetwin.config.unknown_key import unknown_key

    groups, known = option_groups(), leaves(RunConfig)
    if text is not None:
        _check_value(word, key, text, found, others)
    if key in groups:
        empty = _NOWHERE.get(key, "none")
        if empty in groups[key]:
            return f"{key}={empty}"
        raise UserError(
            f"'{echo(word)}' would leave a run without {key}: write {key}=OPTION, one of "
            f"{', '.join(groups[key])}, or leave it out for the default"
        )
    if key not in known and not key.startswith(("system.", "trace.")):
        raise unknown_key(key, [*known, *groups], found.kind)
    if key in known and not known[key].optional:
        raise UserError(
            f"'{echo(word)}' would leave a run without {key}: write {key}=VALUE, or leave it out for the "
            "default"
        )
    return f"{key}=null"


def _check_value(word: str, key: str, text: str, found: Translated, others: Sequence[str]) -> None:
    """Raise UserError unless the run has the value that ``~key=value`` is to remove, as Hydra does."""
    from servetwin.config.compose.compose import load_config
    from servetwin.config.compose.key_text import shown
    from servetwin.config.compose.value_of import value_of

    if found.command not in _ONE_RUN:
        raise UserError(f"'{echo(word)}' is of single runs: write ~{key}")
    kept = [other for other in others if not other.startswith(("out=", "~"))]
    config = load_config([*_translated(kept, found), "out=none"], found.kind)
    try:
        has = shown(value_of(config, key))
    except (KeyError, TypeError):
        has = "unknown"
    if has != text:
        raise UserError(f"'{echo(word)}' does not fit, since {key} is {has} here: write ~{key}")


def _of_hydra(word: str, command: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the words for a key of Hydra's own configuration."""
    key, _, text = word.partition("=")
    text = text.strip("'\"")
    if command not in COMPOSING:
        raise UserError(f"'{echo(word)}' is of runs, and {command} runs nothing: {_SWEEP}")
    if key in ("hydra.run.dir", "hydra.sweep.dir") and "${" in text:
        raise UserError(
            f"{key}={echo(text)} refers to another value: write out=FOLDER with the folder itself"
        )
    if key == "hydra.run.dir" and command in _ONE_RUN:
        yield f"out={text}"
    elif key == "hydra.mode" and text in ("RUN", "MULTIRUN"):
        return
    elif key == "hydra.verbose" and text in ("true", "false"):
        yield from ("-v",) if text == "true" else ()
    elif key == "hydra.job.chdir" and text == "false":
        return
    elif command == "sweep":
        yield from _of_sweep(word, key, text, words)
    else:
        raise UserError(_instead(word, key, command))


def _of_sweep(word: str, key: str, text: str, words: Sequence[str]) -> Iterator[str]:
    if key in _OF_SWEEPS:
        everything = key.endswith("n_jobs") and text == "-1"
        yield f"{_OF_SWEEPS[key]}={os.cpu_count() if everything else text}"
    elif key == "hydra/launcher" and text in _LAUNCHERS:
        own = {other.partition("=")[0] for other in words}
        counted = {"processes", "hydra.launcher.n_jobs"} & own
        yield from () if text == "basic" and counted else _LAUNCHERS[text]
    elif key.startswith(_PARAMS):
        yield f"{key.removeprefix(_PARAMS)}={text}"
    elif key == "hydra/sweeper" and text == "basic":
        return
    elif key == "hydra/sweeper" and text == "optuna":
        if not any(other.startswith(("search.minimize=", "search.maximize=")) for other in words):
            trials = next((one.rpartition("=")[2] for one in words if one.startswith(_TRIALS)), "40")
            raise UserError(f"{word} is {_SEARCH}".replace("=40", f"={trials}"))
    else:
        raise UserError(_instead(word, key, "sweep"))


def _instead(word: str, key: str, command: str) -> str:
    """Return the sentence that names the word to write here."""
    if command not in ("sweep", "plan", "advise") and key.startswith(_SWEEPING):
        added = "workers=N launcher=local|ray" if COMPOSING[command] == "realexec" else "-m, for a sweep"
        return f"'{echo(word)}' is of sweeps: write servetwin sweep, or add {added}, or leave it out"
    begins = [start for start in _INSTEAD if key == start or key.startswith((f"{start}.", f"{start}@"))]
    advice = _INSTEAD[max(begins, key=len)] if begins else _UNUSED
    return f"'{echo(word)}' is of Hydra's own configuration: {advice}"
