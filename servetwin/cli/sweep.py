"""Executes a sweep, reports its progress, writes its tables and its page."""

import json
import sys
from collections.abc import Sequence
from shlex import join
from typing import Any, Final

from servetwin.cli.process import telling
from servetwin.config.overrides import closest
from servetwin.config.whole_file import write_whole
from servetwin.report.metric_text import name_of, value_text
from servetwin.report.number_text import counted
from servetwin.run.first_mistake import both, mistake_in
from servetwin.run.heartbeat import heartbeat
from servetwin.sweeps.axes import SweepAxis, axes_of
from servetwin.sweeps.confidence import Interval
from servetwin.sweeps.headline import headline, judges
from servetwin.sweeps.launch import Launch
from servetwin.sweeps.outcome import PointOutcome
from servetwin.sweeps.page import has_intervals, named_axes, remarks, sweep_page
from servetwin.sweeps.points import Point, points_of
from servetwin.sweeps.same_by_seed import same_by_seed
from servetwin.sweeps.search import best, searched
from servetwin.sweeps.sweep_folder import SHARDS, SweepFolder
from servetwin.sweeps.sweep_words import SweepWords, first_words, sweep_words
from servetwin.sweeps.table import (
    METRICS,
    SweepRuns,
    differences,
    means,
    setting_of,
    write_means,
    write_table,
)
from servetwin.sweeps.text import difference_text, interval_text, setting_name
from serving.vocabulary.errors import PlaceError, UserError

_MOST_LINES: Final = 40


def sweep(words: Sequence[str]) -> int:
    """Exit status 0. UserError for unusable words, and if every point was refused."""
    options = sweep_words(words)
    runs = carried_out(options, words)
    check_metrics(runs, metrics_of(options))
    with telling(f"; the results are in {options.out}"):
        if options.own.get("json"):
            print(json.dumps(as_data(runs, metrics_of(options), _answers(options, runs)), indent=1))
        else:
            print("\n".join(lines_of(runs, metrics_of(options), _answers(options, runs))))
            print(f"results in {options.out} (open report.html)")
    return 0


def carried_out(options: SweepWords, words: Sequence[str]) -> SweepRuns:
    """Run every point and write every file. ``words``: the user's arguments as written.

    UserError if every point was refused.
    """
    try:
        with SweepFolder(options.out) as folder:
            runs = sweep_of(options, folder)
            _write(options, runs, join(["servetwin", "sweep", *words]))
    except PlaceError as error:
        raise both(error, mistake_in(first_words(*axes_of(options.runs)[:2]))) from error
    refused = runs.refused()
    if len(refused) == len(runs.points):
        raise UserError(f"every point of the sweep was refused; {refused[0][0].name}: {refused[0][1]}")
    return runs


def sweep_of(options: SweepWords, folder: SweepFolder) -> SweepRuns:
    """Return every point, those of earlier commands read from the folder."""
    plain, axes, intervals = axes_of(options.runs)
    if not any(word.startswith("uncertainty=") for word in options.runs):
        plain.append("uncertainty=off")
    if intervals or "search.minimize" in options.own or "search.maximize" in options.own:
        return searched(plain, axes, intervals, options.own, folder)
    points = points_of(plain, axes)
    folder.tell({"words": list(options.runs), "points": len(points)})
    outcomes = folder.known(points)
    copies = same_by_seed(points)
    if copies and len(outcomes) < len(points) - len(copies):
        _tell_copies(points, len(copies))
    missing = [point for point in points if point.place not in outcomes and point.place not in copies]
    with heartbeat("sweep", len(missing) + len(outcomes), len(outcomes)) as tell:
        for point, outcome in launch_of(options, folder).carry_out(missing):
            folder.keep(point, outcome)
            outcomes[point.place] = outcome
            tell(len(outcomes))
    return _swept(axes, points, outcomes | {place: outcomes[first] for place, first in copies.items()})


def _tell_copies(points: Sequence[Point], copies: int) -> None:
    """Say before the runs that seeds change nothing, and what draws."""
    where = "" if copies == len(points) - len({setting_of(point) for point in points}) else " in part of it"
    print(
        f"every seed gives the same run{where}, for the seed draws nothing there: {len(points) - copies} of "
        f"{counted(len(points), 'point')} are run, and the others are their copies, without an interval; "
        "trace.resample=block draws the requests of a recorded trace again by seed",
        file=sys.stderr,
        flush=True,
    )


def launch_of(options: SweepWords, folder: SweepFolder) -> Launch:
    """Return how and where the points are run."""
    keys = options.own
    scratch = folder.path / SHARDS
    if keys.get("launcher") == "slurm":
        scratch.mkdir(exist_ok=True)
    return Launch(
        launcher=keys.get("launcher", "local"),
        processes=keys.get("processes", 2),
        folders=str(folder.path / "runs") if keys.get("folders") else "",
        ray_address=keys.get("ray.address", ""),
        slurm_cluster=keys.get("slurm.cluster", "slurm"),
        slurm_partition=keys.get("slurm.partition", ""),
        slurm_jobs=keys.get("slurm.jobs", 8),
        scratch=str(scratch),
    )


def _swept(
    axes: Sequence[SweepAxis], points: Sequence[Point], outcomes: dict[int, PointOutcome]
) -> SweepRuns:
    return SweepRuns(tuple(axes), tuple(points), tuple(outcomes[point.place] for point in points))


def metrics_of(options: SweepWords) -> list[str]:
    """Return the requested metrics, or the usual ones."""
    return list(options.own.get("metrics", METRICS))


def check_metrics(done: SweepRuns, metrics: Sequence[str]) -> None:
    """Raise UserError for a metric that no run has."""
    known = {name for outcome in done.outcomes for name in outcome.numbers}
    for metric in metrics:
        if metric not in known and metric not in METRICS:
            near = closest(metric, known) or "ttft_ms.p99"
            raise UserError(f"runs have no number {metric}: write metrics=[{near}] if that is meant")


def _write(options: SweepWords, done: SweepRuns, command: str) -> None:
    write_table(done, options.out / "sweep.parquet")
    write_means(done, options.out / "means.csv")
    judged = judges(options.own.get("metrics"))
    text = sweep_page(done, command, metrics_of(options), judged, _goal_line(options, done))
    write_whole("out", options.out / "report.html", text)


def _goal_line(options: SweepWords, done: SweepRuns) -> list[str]:
    """Return the best point of a search."""
    if not any(f"search.{way}" in options.own for way in ("minimize", "maximize")):
        return []
    answer = best(done, options.own)
    if answer is None:
        return []
    point, goal, value = answer
    return [f"Best by {name_of(goal)}: {point.name} ({value_text(goal, value)})."]


def _answers(options: SweepWords, done: SweepRuns) -> list[str]:
    """Return the sentences that answer the reader's question."""
    return _goal_line(options, done) or headline(done, judges(options.own.get("metrics")))


def lines_of(done: SweepRuns, metrics: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Return the console's lines: answer, a block per metric, a line per setting, and differences."""
    lines = [counted(len(done.points), "point"), *answers, *remarks(done)]
    several = "mean over seeds (95 % interval)" if has_intervals(done) else "one run each"
    for metric in metrics[:4]:
        if by_setting := means(done, metric):
            lines += ["", f"{name_of(metric)}, {several}"]
            lines += _block({setting: interval_text(metric, mean) for setting, mean in by_setting.items()})
        for key in named_axes(done):
            lines += _difference_lines(metric, key, done)
    return lines


def _difference_lines(metric: str, key: str, done: SweepRuns) -> list[str]:
    by_setting: dict[Any, Interval] = differences(done, metric, key)
    if not by_setting or all(difference.half is None for difference in by_setting.values()):
        return []
    first = next(axis.texts[0] for axis in done.axes if axis.key == key)
    shown = {setting: difference_text(metric, difference) for setting, difference in by_setting.items()}
    return [f"  against {key}={first}, the same seeds:", *_block(shown)]


def _block(shown: dict[Any, str]) -> list[str]:
    names = {setting: setting_name(setting) for setting in shown}
    wide = max(map(len, names.values()))
    lines = [f"  {names[setting]:<{wide}}  {text}" for setting, text in shown.items()]
    lines_left = len(lines) - _MOST_LINES
    return lines if lines_left <= 0 else [*lines[:_MOST_LINES], f"  ... {lines_left} more in means.csv"]


def as_data(done: SweepRuns, metrics: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {
        "points": len(done.points),
        "answers": list(answers),
        "refused": [{"point": dict(point.values), "why": why} for point, why in done.refused()],
        "means": [
            {
                "setting": dict(setting),
                "metric": metric,
                "seeds": mean.count,
                "mean": mean.mean,
                "half": mean.half,
            }
            for metric in metrics
            for setting, mean in means(done, metric).items()
        ],
    }
