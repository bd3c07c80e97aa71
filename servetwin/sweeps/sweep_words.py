"""The words of ``servetwin sweep``: its own keys, a sweep's file, and the words of its runs."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from servetwin.config.compose.checked_words import check_words
from servetwin.config.compose.unread_in_many import refuse_unread_in_sweep
from servetwin.config.options import CONF_DIR, SWEEPS
from servetwin.config.overrides import Override, Wanted, echo, parse_value
from servetwin.config.read_file import yaml_in
from servetwin.run.first_mistake import both, mistake_in
from servetwin.sweeps.axes import SearchInterval, SweepAxis, axes_of, text_of
from servetwin.sweeps.launch import LAUNCHERS
from servetwin.sweeps.number_names import refuse_unknown_numbers
from serving.vocabulary.errors import PlaceError, UserError

OWN: Final = {
    "processes": Wanted(int), "launcher": Wanted(str, choices=LAUNCHERS), "folders": Wanted(bool),
    "metrics": Wanted(list, items=str), "ray.address": Wanted(str), "slurm.cluster": Wanted(str),
    "slurm.partition": Wanted(str), "slurm.jobs": Wanted(int), "search.minimize": Wanted(str),
    "search.maximize": Wanted(str), "search.trials": Wanted(int), "json": Wanted(bool),
}  # fmt: skip
_OUT, _FILE = "out", "sweep"
_MOST_PROCESSES: Final = 1024


@dataclass(frozen=True, slots=True)
class SweepWords:
    """``own``: the sweep's own keys in the words -> their parsed values; ``runs``: the words of its runs."""

    out: Path
    own: Mapping[str, Any]
    runs: tuple[str, ...]


def sweep_words(words: Sequence[str]) -> SweepWords:
    """Parse the words. The command line overrides the file ``sweep=``. UserError naming the word."""
    values: dict[str, Any] = {}
    runs, out, file = list[str](), "", ""
    for word in words:
        key, equals, text = word.partition("=")
        if key in (_OUT, _FILE) and equals and text:
            out, file = (text, file) if key == _OUT else (out, text)
        elif key in OWN and equals and text:
            values[key] = _parse_own_key(key, text)
        elif key == "metric" and text:
            raise UserError(f"the key is metrics: write metrics={text.strip('[]')}")
        elif key in ("overwrite", "journal"):
            raise UserError(
                f"{key}= is of single runs: leave it out (folders=true keeps every run's results)"
            )
        else:
            runs.append(word)
    if file:
        runs, values = _with_file(file, runs, values)
    plain, axes, intervals = axes_of(runs)
    check_words(plain, [*(axis.key for axis in axes), *(axis.key for axis in intervals)], OWN, "a sweep")
    goals = [values[f"search.{way}"] for way in ("minimize", "maximize") if f"search.{way}" in values]
    refuse_unknown_numbers([*values.get("metrics", ()), *goals])
    if "search.trials" in values and not goals:
        trials = values["search.trials"]
        raise UserError(
            f"search.trials={trials} is of a search, and this is a sweep of all values: write "
            "search.minimize=ttft_ms.p99 (or search.maximize=METRIC) too, or leave it out"
        )
    _refuse_unread(plain, axes, intervals, bool(values.get("folders")))
    if not out:
        missing = PlaceError("out= has no default: write out=FOLDER for the sweep's results")
        raise both(missing, mistake_in(first_words(plain, axes)))
    return SweepWords(Path(out).expanduser().resolve(), values, tuple(runs))


def _refuse_unread(
    plain: Sequence[str], axes: Sequence[SweepAxis], intervals: Sequence[SearchInterval], folders: bool
) -> None:
    """Refuse keys that no point reads. Seeds and what a search may set decide nothing: one of each does."""
    fixed = [*plain, *(f"{interval.key}={interval.low:.10g}" for interval in intervals)]
    keys = [word.partition("=")[0] for word in plain]
    keys += [axis.key for axis in axes] + [interval.key for interval in intervals]
    fixed += [] if "uncertainty" in keys else ["uncertainty=off"]
    choices = [
        [f"{axis.key}={text}" for text in (axis.texts[:1] if axis.key == "seed" else axis.texts)]
        for axis in axes
    ]
    refuse_unread_in_sweep(keys, ([*fixed, *chosen] for chosen in itertools.product(*choices)), folders)


def first_words(plain: Sequence[str], axes: Sequence[SweepAxis]) -> list[str]:
    """Return the words of the first point."""
    return [*plain, *(f"{axis.key}={axis.texts[0]}" for axis in axes)]


def _parse_own_key(key: str, text: str) -> Any:
    if key == "metrics" and text[0] != "[":
        text = f"[{text}]"
    value = parse_value(Override(key, text), OWN[key])
    if OWN[key].type is int and not 1 <= value <= _MOST_PROCESSES:
        raise UserError(f"{key}={value} is out of range: write an integer from 1 to {_MOST_PROCESSES}")
    return value


def _with_file(file: str, runs: list[str], own: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    keys = {word.partition("=")[0] for word in runs}
    for key, text in file_words(file).items():
        if key in OWN:
            own.setdefault(key, _parse_own_key(key, text))
        elif key not in keys:
            runs.append(f"{key}={text}")
    return runs, own


def file_words(name: str) -> dict[str, str]:
    """Return key -> text of a sweep's file: one of experiments/conf/sweep, or the user's own.

    The file holds ``hydra: {sweeper: {params: {seed: "0,1,2"}}}``, or ``sweeper:``, or ``params:`` alone.
    """
    path = CONF_DIR / SWEEPS / f"{name}.yaml"
    if not path.is_file():
        path = Path(name).expanduser()
    if not path.exists() or path.is_dir():
        known = ", ".join(sorted(option_file.stem for option_file in (CONF_DIR / SWEEPS).glob("*.yaml")))
        raise UserError(f"sweep={echo(name)} is neither a file nor one of {known}: write one of them")
    try:
        data = yaml_in(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"sweep={echo(name)} cannot be read ({str(error).splitlines()[0]}): write YAML"
        ) from error
    for key in ("hydra", "sweeper", "params"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    if not isinstance(data, dict) or any(isinstance(value, dict) for value in data.values()):
        raise UserError(
            f"sweep={echo(name)} has no keys with values: write 'sweeper:', 'params:' below it, and below "
            "that lines such as 'seed: 0,1,2'"
        )
    return {str(key): value if isinstance(value, str) else text_of(value) for key, value in data.items()}
