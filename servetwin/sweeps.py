"""Many runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from servetwin.words import words_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sweep:
    """``table``: a row per point, its values and every number of its summary (docs/SWEEP.md).

    ``means``: mean and ends of the 95 % interval over seeds, per setting and number. ``refused``: point and
    why.
    """

    table: pd.DataFrame
    means: pd.DataFrame
    refused: dict[str, str]

    def __repr__(self) -> str:
        return f"<Sweep of {len(self.table)} points, {len(self.refused)} refused>"


def sweep(*words: str, out: str | Path | None = None, **values: Any) -> Sweep:
    """``servetwin sweep``: several values of a key as a list, ``seed=[0, 1, 2]``.

    In ``out`` finished points are kept, so that the same call goes on after it was ended.
    """
    if out is not None:
        return _sweep(words_of(words, values), Path(out))
    with TemporaryDirectory() as name:
        return _sweep(words_of(words, values), Path(name) / "sweep")


def _sweep(words: list[str], out: Path) -> Sweep:
    import pandas as pd

    from experiments.commands.sweep_answer import carried_out

    done = carried_out([*words, f"out={out}"])
    table, means = pd.read_parquet(out / "sweep.parquet"), pd.read_csv(out / "means.csv")
    return Sweep(table, means, {point.name: why for point, why in done.refused()})
