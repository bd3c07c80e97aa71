"""The table of one sweep, and the value of any key at each of its points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hwmodels.errors import HardwareError
from servetwin.config.overrides import canonical
from servetwin.config.read_file import json_in
from servetwin.results.parquet_file import frame_of
from servetwin.sweeps.axes import axes_of
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

TABLE: Final = "sweep.parquet"
ABOUT: Final = "sweep.json"
REFUSED: Final = "refused"
ABSENT: Final = "not there"
Values = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SweepTable:
    """``axes``: the keys that take several values. ``fixed``: key that is written with one value -> its text.

    ``words`` is None if the folder does not record the words of its points.
    """

    folder: Path
    frame: pd.DataFrame
    axes: tuple[str, ...]
    words: tuple[str, ...] | None
    fixed: dict[str, str]

    def values_at(self, row: int, keys: Sequence[str]) -> Values:
        """Return (key, value) of one point. UserError for a key whose value the folder does not record."""
        return tuple((key, self._value(row, key)) for key in keys)

    def _value(self, row: int, key: str) -> Any:
        if key in self.axes:
            return plain_value(self.frame[key].iloc[row])
        if key in self.fixed:
            return plain_value(self.fixed[key])
        if self.words is None:
            raise UserError(f"{self.folder} has no {ABOUT}, so its {key} is unknown: run its command again")
        swept = (f"{axis}={_text(self.frame[axis].iloc[row])}" for axis in self.axes if axis != "seed")
        return _configured_value(
            self.folder, (*(f"{fixed}={text}" for fixed, text in self.fixed.items()), *swept), key
        )


def is_sweep(folder: Path) -> bool:
    """Return whether the folder is the out= of a sweep."""
    return (folder / TABLE).is_file()


def sweep_table(folder: Path) -> SweepTable:
    """Return the points that ran, each setting once. UserError for another table."""
    frame = frame_of(folder / TABLE)
    if REFUSED not in frame.columns:
        raise UserError(f"{folder / TABLE} is no table of a sweep: give the out= of servetwin sweep")
    axes = [str(name) for name in frame.columns[: list(frame.columns).index(REFUSED)]]
    frame = frame[frame[REFUSED] == ""]
    if axes:
        frame = frame.drop_duplicates(axes)
    words = _words(folder)
    plain = [] if words is None else axes_of(words)[0]
    fixed = {key: text for key, _, text in (word.partition("=") for word in plain) if key not in axes}
    return SweepTable(folder, frame, tuple(axes), words, fixed)


def plain_value(value: Any) -> Any:
    """Return a numeric text as a number, so that 20, 20.0 and "20" are the same value."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return str(value)
    return int(number) if number.is_integer() else number


def words_apart(first: SweepTable, second: SweepTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that only one of the sweeps has; the order of a word's values is ignored."""
    ours, other = ({_key_and_values(word): word for word in table.words or ()} for table in (first, second))
    only = tuple(word for key, word in ours.items() if key not in other)
    return only, tuple(word for key, word in other.items() if key not in ours)


def _key_and_values(word: str) -> tuple[str, frozenset[Any]]:
    key, _, text = word.partition("=")
    axes = axes_of([word])[1]
    return canonical(key), frozenset(map(plain_value, axes[0].texts if axes else [text]))


def _words(folder: Path) -> tuple[str, ...] | None:
    try:
        words = json_in(folder / ABOUT)["words"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return tuple(map(str, words))


def _text(value: Any) -> str:
    return str(plain_value(value))


@lru_cache(maxsize=4096)
def _configured_value(folder: Path, words: tuple[str, ...], key: str) -> Any:
    """Return the value that a run with these words has for a key that the user did not write.

    ABSENT where it has no such key: a scaler's parameter under a system without that scaler.
    """
    from servetwin.config.compose.compose import load_config
    from servetwin.config.compose.value_of import value_of

    try:
        config = load_config([*words, "out=none"], "simulate")
    except (UserError, HardwareError, TraceError, LookupError) as error:
        raise UserError(
            f"the {key} of the points of {folder} is unknown ({error}): run its command again with "
            f"{key}=VALUE"
        ) from error
    try:
        return plain_value(value_of(config, key))
    except (LookupError, AttributeError):  # a part of the key is missing, or null
        return ABSENT
