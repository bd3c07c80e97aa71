"""Two sweeps beside each other: the settings both have, seed by seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from experiments.sweep.student import Interval, interval_of
from experiments.sweep.table import METRICS, SEED
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

TABLE: Final = "sweep.parquet"
_REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class SweepsApart:
    """``keys``: the axes both have, without the seed. setting -> metric -> second minus first over seeds.

    ``words``: of one value that the first has and the second has not, and the other way round.
    """

    keys: tuple[str, ...]
    differences: dict[tuple[Any, ...], dict[str, Interval]]
    words: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def is_sweep(folder: Path) -> bool:
    """Whether it is the out= of a sweep."""
    return (folder / TABLE).is_file()


def sweeps_apart(first: Path, second: Path, metrics: Sequence[str] = METRICS) -> SweepsApart:
    """UserError when no setting is in both."""
    import pandas as pd

    tables = [pd.read_parquet(folder / TABLE) for folder in (first, second)]
    axes = [list(table.columns[: list(table.columns).index(_REFUSED)]) for table in tables]
    shared = [key for key in axes[0] if key in axes[1]]
    if (SEED in axes[0]) != (SEED in axes[1]):  # a sweep without it ran the default
        tables = [table[table[SEED] == 0] if SEED in table.columns else table for table in tables]
    if not shared:
        raise UserError(f"{first} and {second} share no key: compare sweeps over the same keys")
    shown = [name for name in metrics if all(name in table.columns for table in tables)]
    both = tables[0].merge(tables[1], on=shared, suffixes=(".first", ".second"))
    keys = [key for key in shared if key != SEED]
    if both.empty:
        raise UserError(
            f"{first} and {second} have no setting in common: compare sweeps over the same values"
        )
    groups = both.groupby(keys, sort=False) if keys else [((), both)]
    found = {
        setting if isinstance(setting, tuple) else (setting,): _intervals(rows, shown)
        for setting, rows in groups
    }
    first_words, second_words = _words(first), _words(second)
    apart = tuple(sorted(first_words - second_words)), tuple(sorted(second_words - first_words))
    return SweepsApart(tuple(keys), found, apart)


def _words(folder: Path) -> set[str]:
    try:
        told = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["words"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {str(word) for word in told}


def _intervals(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Interval]:
    apart = {name: (rows[f"{name}.second"] - rows[f"{name}.first"]).dropna().tolist() for name in metrics}
    return {name: interval_of(values) for name, values in apart.items() if values}
