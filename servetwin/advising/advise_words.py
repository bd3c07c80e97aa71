"""The words of ``servetwin advise``: the record, the scalers, and words of every simulated run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.config.compose.checked_words import check_words
from servetwin.config.compose.option_tree import option_tree
from servetwin.config.overrides import Override, Wanted, parse_value
from servetwin.sweeps.axes import axes_of, refuse_twice
from serving.vocabulary.errors import UserError

SCALERS: Final = (
    "hpa", "keda", "kpa", "apa", "token_velocity", "tokenscale", "heteroscale", "wva_v1", "wva_v2",
    "dynamo_throughput", "dynamo_load", "chiron",
)  # fmt: skip
"""Those that read metrics, in the order of docs/reference/SCALERS.md."""
OWN: Final = {
    "columns": Wanted(list, items=str), "prefix_hits": Wanted(float), "simulate": Wanted(bool),
    "processes": Wanted(int), "json": Wanted(bool), "overwrite": Wanted(bool),
}  # fmt: skip
_SCALER, _PARAMETER = "system/scaler", "system.scaler."
TARGET: Final = f"{_PARAMETER}target"
THRESHOLD: Final = f"{_PARAMETER}threshold"
_OF_THRESHOLD: Final = "keda"
_LIKE_A_TARGET: Final = ("target", "threshold")
_LOG, _OUT = "log", "out"
_LENGTHS: Final = "trace.lengths"
_OF_RECORD: Final = ("trace", "trace.rates", "trace.rate_per_s", "trace.requests", "trace.clients")
_ELASTIC: Final = "serverlessllm"
"""Instances start and stop as pods do: nothing is served while parameters come from SSD or host memory."""
_MOST_PROCESSES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseWords:
    """``scalers``: names. ``runs``: the other words, by key. ``parameters``: ``system.scaler.`` keys -> text.

    ``renamed``: the file's name of a column -> ours. ``lengths``: trace.lengths, "" if not given.
    ``assumed_system``: the system if none was given, else "".
    """

    log: Path
    scalers: tuple[str, ...]
    runs: Mapping[str, str]
    parameters: Mapping[str, str]
    own: Mapping[str, Any]
    renamed: Mapping[str, str]
    lengths: str
    out: Path | None
    assumed_system: str

    @property
    def runs_simulations(self) -> bool:
        """Whether the arrivals are simulated too."""
        return bool(self.own.get("simulate", True))

    def words_of(self, scaler: str) -> list[str]:
        """Return the words of this scaler's run, but for its trace, its cluster and its start."""
        return [
            *(f"{key}={text}" for key, text in self.runs.items()),
            f"{_SCALER}={scaler}",
            *(f"{key}={text}" for key, text in self.parameters.items() if _has(scaler, key)),
            *([f"{THRESHOLD}={self.parameters[TARGET]}"] if self.has_target_as_threshold(scaler) else []),
        ]

    def has_target_as_threshold(self, scaler: str) -> bool:
        """Whether the given target is this scaler's threshold, of an instance too; none was given."""
        given = TARGET in self.parameters and THRESHOLD not in self.parameters
        return given and scaler == _OF_THRESHOLD and _has(scaler, THRESHOLD)

    def told(self) -> list[str]:
        """Say which scalers a target does not reach, and their own parameters of that kind."""
        if TARGET not in self.parameters:
            return []
        said, word = [], f"{TARGET}={self.parameters[TARGET]}"
        if any(map(self.has_target_as_threshold, self.scalers)):
            said.append(f"{word} is also {_OF_THRESHOLD}'s threshold, as no {THRESHOLD}= was given")
        if others := [name for name in self.scalers if not self._reaches(name)]:
            said.append(f"{word} is no parameter of {', '.join(map(_with_thresholds, others))}")
        return [f"target: {'; '.join(said)}"] if said else []

    def _reaches(self, scaler: str) -> bool:
        return _has(scaler, TARGET) or scaler == _OF_THRESHOLD


def advise_words(words: Sequence[str]) -> AdviseWords:
    """Parse the words. UserError naming the word that cannot be used, or what is missing."""
    refuse_twice(words)
    own, runs, parameters = dict[str, Any](), dict[str, str](), dict[str, str]()
    log, out = "", ""
    scalers: tuple[str, ...] = SCALERS
    plain, axes, intervals = axes_of(words)
    several = {axis.key: axis.texts for axis in axes}
    for word in [*plain, *(f"{axis.key}={','.join(axis.texts)}" for axis in axes)]:
        key, equals, text = word.partition("=")
        if not equals or not text:
            raise UserError(f"'{word}' has no value: write key=value, such as log=metrics.json")
        if key == _LOG:
            log = text
        elif key == _OUT:
            out = text
        elif key == _SCALER:
            scalers = several.get(key, (text,))
        elif key in OWN:
            own[key] = _own(key, text)
        elif key in several or intervals:
            raise UserError(f"{key} has several values, and only {_SCALER} may: write one")
        elif key.startswith(_PARAMETER):
            parameters[key] = text
        else:
            runs[key] = text
    if not log:
        raise UserError("log= has no default: write log=FILE, Prometheus' answers in JSON or a CSV file")
    _check_runs(runs)
    lengths = runs.pop(_LENGTHS, "")
    _check_parameters(parameters, scalers)
    return AdviseWords(
        log=Path(log).expanduser(),
        scalers=tuple(dict.fromkeys(scalers)),
        runs=_with_defaults(runs),
        parameters=parameters,
        own=own,
        renamed=_renamed(own.get("columns", ())),
        lengths=lengths,
        assumed_system="" if "system" in runs else _ELASTIC,
        out=Path(out).expanduser().resolve() if out else None,
    )


def _own(key: str, text: str) -> Any:
    if key == "columns" and not text.startswith("["):
        text = f"[{text}]"
    value = parse_value(Override(key, text), OWN[key])
    if key == "processes" and not 1 <= value <= _MOST_PROCESSES:
        raise UserError(f"processes={value} is out of range: write an integer from 1 to {_MOST_PROCESSES}")
    if key == "prefix_hits" and not 0 <= value <= 1:
        raise UserError(f"prefix_hits={value:g} is out of range: write a share from 0 to 1")
    return value


def _check_runs(runs: Mapping[str, str]) -> None:
    for key in runs:
        if key in _OF_RECORD:
            raise UserError(
                f"{key}= is the record's own: leave it out (trace.lengths= and trace.rate_scale= are read)"
            )
        if key in ("models", "uncertainty", "journal", "config", "series.period_s"):
            raise UserError(f"{key}= is of single runs: leave it out, or write it to servetwin simulate")
    if runs.get("system.instances.split", "false") != "false":
        raise UserError(
            "a record has one number of instances, which prefill and decode: leave system.instances.split out"
        )
    check_words([f"{key}={text}" for key, text in runs.items()], (), [*OWN, _LOG, _OUT], "advice")


def _with_defaults(runs: Mapping[str, str]) -> dict[str, str]:
    defaults = {"system": _ELASTIC, "system.instances.split": "false", "uncertainty": "off"}
    if "system.instances.queue" not in runs:
        defaults["system.instances.queue"] = "per_instance"
    return defaults | dict(runs)


def _check_parameters(parameters: Mapping[str, str], scalers: Sequence[str]) -> None:
    for key in parameters:
        also = key == TARGET and THRESHOLD not in parameters and _OF_THRESHOLD in scalers
        if not also and not any(_has(scaler, key) for scaler in scalers):
            raise UserError(
                f"{key} is a parameter of none of {', '.join(scalers)}: leave it out, or name its scaler"
            )


def _has(scaler: str, key: str) -> bool:
    """Return whether a scaler has a parameter; of a class of the user's own its run says it."""
    if ":" in scaler or scaler not in SCALERS:
        return True
    return key.removeprefix(_PARAMETER) in _parameters(scaler)


def _parameters(scaler: str) -> Collection[str]:
    choices = [Override("system", _ELASTIC), Override(_SCALER, scaler)]
    names: Collection[str] = option_tree("simulate", choices)["system"]["scaler"]["params"]
    return names


def _with_thresholds(scaler: str) -> str:
    """Return the scaler and what it has in place of a target, if anything."""
    own = [f"{_PARAMETER}{name}=" for name in _parameters(scaler) if name.endswith(_LIKE_A_TARGET)]
    return f"{scaler} (write {' or '.join(own)})" if own else scaler


def _renamed(pairs: Sequence[str]) -> dict[str, str]:
    """Return ``columns=[waiting:Queue length]`` as the file's name -> ours."""
    from servetwin.advising.columns import COLUMNS

    renamed = {}
    for pair in pairs:
        ours, colon, theirs = str(pair).partition(":")
        if not colon or ours not in COLUMNS:
            raise UserError(f"columns=[{pair}] is no OURS:THEIRS: write for OURS one of {', '.join(COLUMNS)}")
        renamed[theirs] = ours
    return renamed
