"""``sweeps.json``: what every run of a reproduction measured, seed by seed and along every sweep."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from experiments.common.figure import Figure, Key
from experiments.common.outcomes import SAVED, Metric, Outcomes, RunOutcome
from experiments.common.sweep import SetUpSweep

FILE: Final = "sweeps.json"
SEED: Final = "seed"


def as_saved(outcomes: Outcomes, figures: Sequence[Figure]) -> dict[str, dict[str, Any]]:
    """kind -> set-up or figure -> its numbers. Every row that is out finds its keys here."""
    saved: dict[str, dict[str, Any]] = {SEED: by_seed(outcomes)}
    for sweep in outcomes.sweeps:
        saved.setdefault(sweep.kind, {})[sweep.subject] = along(outcomes, sweep)
    for figure in figures:
        for (kind, subject), data in figure.sweeps.items():
            saved.setdefault(kind, {})[subject] = data
    for figure in figures:
        for row in figure.rows:
            lost = [key for key in row.saved if key[1] not in saved.get(key[0], {})]
            assert not lost, f"{figure.name}, {row.name}: {FILE} has no {lost}"
    return saved


def as_text(saved: Mapping[str, Mapping[str, Any]]) -> str:
    """The JSON, without infinities."""
    return json.dumps(_finite(saved), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def by_seed(outcomes: Outcomes) -> dict[str, Any]:
    """Set-up -> system -> number -> one value per seed, of all cases that ran under every seed."""
    by_set_up: dict[str, Any] = {}
    for case, runs in outcomes.runs.items():
        if case.once:
            continue
        systems = by_set_up.setdefault(case.set_up.name, {})
        assert case.label not in systems, f"{case.set_up.name}: two systems are called {case.label}"
        systems[case.label] = {name: _values(metric, runs) for name, metric in SAVED.items()}
    return by_set_up


def along(outcomes: Outcomes, sweep: SetUpSweep) -> dict[str, Any]:
    """Return what the sweep changes, and the numbers of every system at each of its values.

    A number is a list with one value per seed if the sweep is run under every seed; otherwise it is that of
    seed 0.
    """
    points = {
        value: {
            case.label: {
                name: values if sweep.seeded else values[0]
                for name, values in _numbers(runs).items()
                if values
            }
            for case in cases
            if (runs := outcomes.of(case))
        }
        for value, cases in sweep.points
    }
    return {"told": sweep.about, "points": points}


def pointing(keys: Sequence[Key]) -> str:
    """Return the words that name the file and the keys under which numbers are saved."""
    return f"saved in {FILE}: " + ", ".join(f"{kind} > {subject}" for kind, subject in keys)


def _numbers(runs: Sequence[RunOutcome]) -> dict[str, list[float] | None]:
    return {name: _values(metric, runs) for name, metric in SAVED.items()}


def _values(metric: Metric, runs: Sequence[RunOutcome]) -> list[float] | None:
    return metric.of(runs)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
