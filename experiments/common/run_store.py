"""Keeps finished runs of a reproduction on disk: after an interruption the same command makes the rest.

The key of a run is what made it: its case, its seed and the code. Files hold numbers and text alone.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.common.outcomes import RunOutcome
from experiments.common.set_up import Case

_COLUMNS: Final = ("arrival_s", "ttft_ms", "tpot_ms")
_PACKAGES: Final = ("serving", "policies", "hwmodels", "simcore", "traces", "servetwin", "experiments")
# Of these packages the files that a run depends on; figures and pages may change without a new run.
_FIGURES: Final = ("experiments/common", "experiments/blitzscale", "experiments/llumnix")
_RUNS: Final = ("outcomes.py", "rates.py", "run_store.py", "runs.py", "timelines.py", "once.py")


@dataclass(frozen=True, slots=True)
class RunStore:
    """Runs in ``folder``, which is created with the first run."""

    folder: Path

    def load(self, case: Case, seed: int) -> RunOutcome | None:
        """The stored run; None when there is none, or its file is broken."""
        try:
            with np.load(self._path(case, seed), allow_pickle=False) as found:
                data = json.loads(str(found["text"]))
                lines = {name: (found[f"x {name}"], found[f"y {name}"]) for name in data["timelines"]}
                arrival_s, ttft_ms, tpot_ms = (found[name] for name in _COLUMNS)
                more = {name: found[f"column {name}"] for name in data["columns"]}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return RunOutcome(
            words=tuple(data["words"]),
            summary=data["summary"],
            arrival_s=arrival_s,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
            inputs=data["told"],
            timelines=lines,
            columns=more,
        )

    def keep(self, case: Case, seed: int, run: RunOutcome) -> None:
        """Write the run atomically."""
        text = {
            "words": run.words,
            "summary": run.summary,
            "told": run.inputs,
            "timelines": list(run.timelines),
            "columns": list(run.columns),
        }
        arrays: dict[str, Any] = {name: getattr(run, name) for name in _COLUMNS}
        for name, (x, y) in run.timelines.items():
            arrays |= {f"x {name}": x, f"y {name}": y}
        arrays |= {f"column {name}": column for name, column in run.columns.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(case, seed)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez(file, text=np.array(json.dumps(text, default=_number)), **arrays)
        part.replace(path)

    def clear(self) -> None:
        """Delete the runs, and the folder if nothing else is in it."""
        if not self.folder.is_dir():
            return
        for path in (*self.folder.glob("*.npz"), *self.folder.glob("*.part")):
            path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, case: Case, seed: int) -> Path:
        made_by = f"{case!r} {seed} {_code()}"
        return self.folder / f"{hashlib.sha256(made_by.encode()).hexdigest()[:32]}.npz"


@cache
def _code() -> str:
    """A digest of the sources a run is made with."""
    top, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((top / package).rglob("*")):
            inside = str(path.parent.relative_to(top)) in _FIGURES and path.name not in _RUNS
            if path.suffix in (".py", ".yaml", ".json") and not inside:
                digest.update(str(path.relative_to(top)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _number(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a summary")
