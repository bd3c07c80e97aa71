"""Keeps finished runs of a reproduction on disk, so that an interrupted command can be repeated.

The repeated command makes only the runs that are not in the store. Each run is one file, named by a digest of
the run's case, its seed and the code that made it. The files hold numbers and text, no pickled objects.
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
# No run depends on the files of these folders, which make figures and pages, except on _RUN_FILES.
_FIGURE_FOLDERS: Final = (
    "experiments", "experiments/common", "experiments/blitzscale", "experiments/llumnix", "experiments/quart",
    "experiments/scale",
)  # fmt: skip
_RUN_FILES: Final = (
    "outcomes.py",
    "rates.py",
    "run_store.py",
    "runs.py",
    "scale_times.py",
    "timelines.py",
    "once.py",
)


@dataclass(frozen=True, slots=True)
class RunStore:
    """Stored runs in ``folder``, which ``keep`` creates when it stores the first run."""

    folder: Path

    def load(self, case: Case, seed: int) -> RunOutcome | None:
        """Return the stored run of the case with this seed; None if there is none or its file is broken."""
        try:
            with np.load(self._path(case, seed), allow_pickle=False) as file:
                data = json.loads(str(file["text"]))
                timelines = {name: (file[f"x {name}"], file[f"y {name}"]) for name in data["timelines"]}
                arrival_s, ttft_ms, tpot_ms = (file[name] for name in _COLUMNS)
                columns = {name: file[f"column {name}"] for name in data["columns"]}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return RunOutcome(
            words=tuple(data["words"]),
            summary=data["summary"],
            arrival_s=arrival_s,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
            inputs=data["told"],
            timelines=timelines,
            columns=columns,
            wall_s=data["wall_s"],
        )

    def has(self, case: Case, seed: int) -> bool:
        """Whether there is a file of this run; ``load`` still refuses a broken one."""
        return self._path(case, seed).is_file()

    def keep(self, case: Case, seed: int, run: RunOutcome) -> None:
        """Store the run: write a temporary file, then rename it."""
        text = {
            "words": run.words,
            "summary": run.summary,
            "told": run.inputs,
            "timelines": list(run.timelines),
            "columns": list(run.columns),
            "wall_s": run.wall_s,
        }
        arrays: dict[str, Any] = {name: getattr(run, name) for name in _COLUMNS}
        for name, (x, y) in run.timelines.items():
            arrays |= {f"x {name}": x, f"y {name}": y}
        arrays |= {f"column {name}": column for name, column in run.columns.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(case, seed)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez(file, text=np.array(json.dumps(text, default=_json_value)), **arrays)
        part.replace(path)

    def clear(self) -> None:
        """Delete all stored runs, then the folder if it is empty."""
        if not self.folder.is_dir():
            return
        for path in (*self.folder.glob("*.npz"), *self.folder.glob("*.part")):
            path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, case: Case, seed: int) -> Path:
        identity = f"{case!r} {seed} {_code()}"
        return self.folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"


@cache
def _code() -> str:
    """Return a digest of the source files that runs depend on."""
    top, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((top / package).rglob("*")):
            in_figures = str(path.parent.relative_to(top)) in _FIGURE_FOLDERS
            for_figures_only = in_figures and path.name not in _RUN_FILES
            if path.suffix in (".py", ".yaml", ".json") and not for_figures_only:
                digest.update(str(path.relative_to(top)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _json_value(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number, and a mapping that ``json`` cannot write to a dict."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a summary")
