"""Many runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from servetwin.api.words import words_of
from serving.vocabulary.errors import UserError

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

    In ``out`` finished points are kept, so that the same call goes on after it was ended. A class of the
    script itself is in no other process: with one, all points run here.
    """
    of_this_script = any(_of_this_script(value) for value in values.values())
    if of_this_script and values.setdefault("processes", 1) != 1:
        raise UserError("a class of this script is in no other process: put it into a module")
    if out is not None:
        return _sweep(words_of(words, values), Path(out))
    with TemporaryDirectory() as name:
        return _sweep(words_of(words, values), Path(name) / "sweep")


def _of_this_script(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, type) and item.__module__ == "__main__" for item in several)


def _sweep(words: list[str], out: Path) -> Sweep:
    import pandas as pd

    from servetwin.cli.sweep import carried_out
    from servetwin.results.parquet_file import frame_of
    from servetwin.sweeps.sweep_words import sweep_words

    all_words = [*words, f"out={out}"]
    runs = carried_out(sweep_words(all_words), all_words)
    table, means = frame_of(out / "sweep.parquet"), pd.read_csv(out / "means.csv")
    return Sweep(table, means, {point.name: why for point, why in runs.refused()})
