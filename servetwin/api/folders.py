"""Opens the folder of a finished command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from servetwin.api.advices import Advice, advice_of
from servetwin.api.plans import Plan, plan_of
from servetwin.api.runs import Run, run_in
from servetwin.api.sweeps import sweep_in
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Reproduction:
    """What ``servetwin reproduce`` wrote.

    ``points``: a row per point that its figures draw, ours beside the paper's. ``runs``: a row per run behind
    them, with its command.
    """

    points: pd.DataFrame
    runs: pd.DataFrame

    def __repr__(self) -> str:
        return f"<Reproduction of {self.points['figure'].nunique()} figures, {len(self.runs)} runs>"


def read(folder: str | Path) -> Run | Any:
    """Return what a command wrote into its ``out=``.

    A Run of ``simulate`` or ``realexec run``, a Sweep, a Plan, an Advice or a Reproduction. UserError for
    none of these. ``Any`` stands for all but Run, so that a type checker lets code for runs use the result.
    """
    from servetwin.compare.sweep_table import is_sweep

    path = Path(folder).expanduser().resolve()
    if is_sweep(path):
        return sweep_in(path)
    opens = next((opens for name, opens in _BY_FILE.items() if (path / name).is_file()), None)
    if opens is None:
        raise UserError(
            f"{path} has no results: give the out= of simulate, sweep, plan, advise, reproduce or realexec"
        )
    return opens(path)


def _plan_in(path: Path) -> Plan:
    return plan_of(json.loads((path / "plan.json").read_text(encoding="utf-8")))


def _advice_in(path: Path) -> Advice:
    data = json.loads((path / "advise.json").read_text(encoding="utf-8"))
    return advice_of(data, (path / "advise.csv").read_text(encoding="utf-8"))


def _reproduction_in(path: Path) -> Reproduction:
    import pandas as pd

    return Reproduction(pd.read_csv(path / "points.csv"), pd.read_csv(path / "runs.csv"))


# A file that only one kind of folder has -> what opens it.
_BY_FILE: Final[Mapping[str, Callable[[Path], Any]]] = {
    "summary.json": run_in,
    "plan.json": _plan_in,
    "advise.json": _advice_in,
    "points.csv": _reproduction_in,
}
