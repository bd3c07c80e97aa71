"""Many runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from servetwin.api.words import words_of
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MEANS: Final = "means.csv"


@dataclass(frozen=True)
class Sweep:
    """``table``: a row per point, its values and every number of its summary (docs/how-to/SWEEP.md).

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
    from servetwin.cli.sweep import carried_out
    from servetwin.sweeps.sweep_words import sweep_words

    all_words = [*words, f"out={out}"]
    carried_out(sweep_words(all_words), all_words)
    return sweep_in(out)


def sweep_in(folder: Path) -> Sweep:
    """The sweep whose ``out=`` the folder is. UserError for a table of something else."""
    import pandas as pd

    from servetwin.compare.sweep_table import REFUSED, TABLE
    from servetwin.results.parquet_file import frame_of

    table = frame_of(folder / TABLE)
    if REFUSED not in table.columns or not (folder / MEANS).is_file():
        raise UserError(f"{folder} is no finished sweep: give the out= of servetwin sweep")
    axes = [str(name) for name in table.columns[: list(table.columns).index(REFUSED)]]
    refused = {
        " ".join(f"{axis}={row[axis]}" for axis in axes) or "the only run": row[REFUSED]
        for row in table[table[REFUSED] != ""].to_dict("records")
    }
    return Sweep(table, pd.read_csv(folder / MEANS), refused)
