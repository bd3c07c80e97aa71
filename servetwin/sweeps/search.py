"""A search: Optuna proposes settings, each one is run, and the best one is reported.

The sampler has a fixed seed, so the same command proposes the same trials and resumes them from the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from servetwin.run.heartbeat import heartbeat
from servetwin.sweeps.axes import SearchInterval, SweepAxis
from servetwin.sweeps.outcome import PointOutcome, outcome_of
from servetwin.sweeps.points import Point
from servetwin.sweeps.sweep_folder import SweepFolder
from servetwin.sweeps.table import SweepRuns
from serving.vocabulary.errors import UserError

_TRIALS: Final = 40


def searched(
    plain: Sequence[str],
    axes: Sequence[SweepAxis],
    intervals: Sequence[SearchInterval],
    own: Mapping[str, Any],
    folder: SweepFolder,
) -> SweepRuns:
    """Run the trials, one point each, in order. Axes are choices of words. UserError without one goal."""
    goal, direction = _goal(own)
    if not axes and not intervals:
        raise UserError("a search has nothing to choose: write KEY=interval(0.1,1) or KEY=A,B")
    optuna = _optuna()
    study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=0))
    trials, points, outcomes = own.get("search.trials", _TRIALS), list[Point](), list[PointOutcome]()
    folder.tell({"words": list(plain), "goal": goal, "direction": direction, "trials": trials})
    with heartbeat("search", trials) as tell:
        for place in range(trials):
            trial = study.ask()
            values = tuple(_propose(trial, axes, intervals))
            point = Point(place, (*plain, *(f"{key}={text}" for key, text in values)), values)
            outcome = folder.known([point]).get(place)
            if outcome is None:
                outcome = outcome_of(point.words)
                folder.keep(point, outcome)
            points.append(point)
            outcomes.append(outcome)
            _tell_study(study, trial, outcome, goal, optuna)
            tell(place + 1)
    keys = [*(axis.key for axis in axes), *(interval.key for interval in intervals)]
    tried = [
        SweepAxis(key, tuple(dict.fromkeys(dict(earlier.values)[key] for earlier in points))) for key in keys
    ]
    return SweepRuns(tuple(tried), tuple(points), tuple(outcomes))


def best(sweep: SweepRuns, own: Mapping[str, Any]) -> tuple[Point, str, float] | None:
    """Return the point with the best goal, the goal and its value; None if no point has it."""
    goal, direction = _goal(own)
    pairs = [
        (point, goal, outcome.numbers[goal]) for point, outcome in sweep.rows() if goal in outcome.numbers
    ]
    if not pairs:
        return None
    return (min if direction == "minimize" else max)(pairs, key=lambda study: study[2])


def _goal(own: Mapping[str, Any]) -> tuple[str, str]:
    goals = [(own[f"search.{way}"], way) for way in ("minimize", "maximize") if f"search.{way}" in own]
    if len(goals) != 1:
        raise UserError("a search has one goal: write search.minimize=ttft_ms.p99 or search.maximize=METRIC")
    return goals[0]


def _propose(
    trial: Any, axes: Sequence[SweepAxis], intervals: Sequence[SearchInterval]
) -> list[tuple[str, str]]:
    chosen = [(axis.key, str(trial.suggest_categorical(axis.key, list(axis.texts)))) for axis in axes]
    for interval in intervals:
        if interval.whole:
            value: float = trial.suggest_int(
                interval.key, int(interval.low), int(interval.high), log=interval.log
            )
        else:
            value = trial.suggest_float(interval.key, interval.low, interval.high, log=interval.log)
        chosen.append((interval.key, f"{value:.10g}"))
    return chosen


def _tell_study(study: Any, trial: Any, outcome: PointOutcome, goal: str, optuna: Any) -> None:
    if goal in outcome.numbers:
        study.tell(trial, outcome.numbers[goal])
        return
    if not outcome.refused:
        near = (
            ", ".join(name for name in outcome.numbers if name.startswith(goal.partition(".")[0]))
            or "ttft_ms.p99"
        )
        raise UserError(f"runs have no number {goal}: write one of {near}")
    study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("a search needs Optuna: pip install 'servetwin[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
