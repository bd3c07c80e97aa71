"""Opens the folder of a finished command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from servetwin.api.runs import Run, run_in
from servetwin.api.sweeps import sweep_in


def read(folder: str | Path) -> Run | Any:
    """A Run of a simulated or a real run's folder, a Sweep of a sweep's. UserError for what is neither.

    ``Any`` stands for Sweep, so that a type checker lets code for runs use the result as it is.
    """
    from servetwin.compare.sweep_table import is_sweep

    path = Path(folder).expanduser().resolve()
    return sweep_in(path) if is_sweep(path) else run_in(path)
