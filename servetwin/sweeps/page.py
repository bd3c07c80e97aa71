"""``report.html`` of a sweep: results of every setting, which is better, and a chart of each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

import numpy as np

from servetwin.report import page_parts, plots
from servetwin.report.answer_page import COLORS, answer, command, page, table
from servetwin.report.figures import figure
from servetwin.report.metric_text import name_of, value_text
from servetwin.report.number_text import counted
from servetwin.report.page_parts import charts
from servetwin.report.starts import different_starts, preparation_s
from servetwin.sweeps.headline import USUAL, headline, is_given
from servetwin.sweeps.table import SEED, SweepRuns, Values, differences, means, setting_of, typed
from servetwin.sweeps.text import difference_text, interval_text, setting_name
from serving.vocabulary.errors import UserError
from traces.errors import TraceError
from traces.resampling import stages_warning

_MOST_ROWS: Final = 60
_FEW_NUMBERS: Final = 8
_SPANS_DECADES: Final = 20  # from this ratio on, use a logarithmic axis


def sweep_page(
    sweep: SweepRuns,
    words: str,
    metrics: Sequence[str],
    judged: Sequence[str] = USUAL,
    best: Sequence[str] = (),
) -> str:
    """Return the HTML. ``metrics``: the displayed numbers; ``judged``: those that decide which is best.

    ``best``: the answer of a search, in place of one by ``judged``.
    """
    axes = " × ".join(f"{len(axis.texts)} {axis.key}" for axis in sweep.axes) or "one run"  # noqa: RUF001
    shown = [metric for metric in metrics if sweep.by_seed(metric)]
    parts = [
        *map(answer, best or headline(sweep, judged)),
        page_parts.remarks([*verdicts(sweep, judged), *remarks(sweep)], "said"),
        _settings(sweep, shown),
        *_differences_part(sweep, shown),
        _charts(sweep, shown),
        command(words),
    ]
    claim = f"{counted(len(sweep.points), 'run')}: {axes}."
    return page("Sweep", axes, claim, parts, _foot(sweep))


def _foot(sweep: SweepRuns) -> str:
    if not has_intervals(sweep):
        return "One run of each setting: there is no interval. docs/how-to/SWEEP.md says how to get one."
    return "Intervals are 95 % of Student's t over the seeds; docs/how-to/SWEEP.md says what they rest on."


def has_intervals(sweep: SweepRuns) -> bool:
    """Return whether any setting has several runs that may differ."""
    return bool(sweep.drawn())


def remarks(sweep: SweepRuns) -> list[str]:
    """Return the remarks to read before the numbers."""
    return [
        *_starts(sweep),
        *_objectives(sweep),
        *_why_no_interval(sweep),
        *_shuffled_stages(sweep),
        *_several_gpus(sweep),
        *refusals(sweep),
    ]


def _starts(sweep: SweepRuns) -> list[str]:
    """Return the remark on settings whose instances start differently."""
    seconds = dict[str, list[float]]()
    for point, outcome in sweep.rows():
        known = {
            name: outcome.numbers[key]
            for name in ("total", "weights")
            if (key := f"starts.median_s.{name}") in outcome.numbers
        }
        if (one := preparation_s(known)) is not None:
            seconds.setdefault(setting_name(setting_of(point)), []).append(one)
    return different_starts({name: fmean(several) for name, several in seconds.items()})


def _objectives(sweep: SweepRuns) -> list[str]:
    """Return the objectives of SLO attainment, if all points have the same."""
    pairs = {
        (outcome.numbers.get("slo.ttft_ms"), outcome.numbers.get("slo.tpot_ms"))
        for _, outcome in sweep.rows()
    }
    if len(pairs) != 1 or None in (pair := pairs.pop()):
        return []
    ttft, tpot = (f"{value:g} ms" for value in pair)
    return [
        f"SLO attainment is the share of requests with TTFT at most {ttft} (slo.ttft_ms) and TPOT at most "
        f"{tpot} (slo.tpot_ms)"
    ]


def _why_no_interval(sweep: SweepRuns) -> list[str]:
    copied = sweep.copied()
    if not copied and (has_intervals(sweep) or len(sweep.points) == 1):
        return []
    if not copied:
        return ["one seed: there is no interval, so what is chance is not known; write several: seed=0,1,2"]
    where = ""
    if has_intervals(sweep):
        first = next(setting for setting in sweep.settings() if setting in copied)
        where = f" in {counted(len(copied), 'setting')}, first {setting_name(first)}"
    return [
        f"every seed gave the same run{where}, for nothing in it is drawn: there is no interval; write "
        "trace.resample=block trace.block_requests=200 to draw the requests again"
    ]


def _shuffled_stages(sweep: SweepRuns) -> list[str]:
    """Return the warning of the first point that draws requests again whose trace has stages."""
    from servetwin.assemble.workload import finished, selected
    from servetwin.config.compose.compose import load_config

    for point, _ in sweep.rows():
        if not any(word.startswith("trace.resample=") for word in point.words):
            continue
        try:
            trace = load_config([*point.words, "out=none"], "simulate").trace
            if trace.resample is not None:
                whole = finished(replace(trace, resample=None, clients=None), 0, selected(trace, 0))
                return [warning] if (warning := stages_warning(whole)) else []
        except (UserError, TraceError):  # ran earlier, when a file of its words existed
            return []
    return []


def _several_gpus(sweep: SweepRuns) -> list[str]:
    """Return why an instance of the first point that ran has several GPUs, if the user did not set them."""
    from servetwin.config.compose.compose import load_config
    from servetwin.results.parallelism import gpus_of_an_instance

    for point, _ in sweep.rows():
        try:
            remark = gpus_of_an_instance(load_config([*point.words, "out=none"], "simulate"))
        except UserError:  # ran earlier, when a file of its words existed
            return []
        return [remark] if remark else []
    return []


def refusals(sweep: SweepRuns) -> list[str]:
    """Return one sentence per reason, with the first point that had it."""
    causes: dict[str, list[str]] = {}
    for point, why in sweep.refused():
        causes.setdefault(why, []).append(point.name)
    return [f"{_many(len(names))} refused, first {names[0]}: {why}" for why, names in causes.items()]


def _many(count: int) -> str:
    return "1 point was" if count == 1 else f"{count} points were"


def verdicts(sweep: SweepRuns, metrics: Sequence[str]) -> list[str]:
    """Count settings in which each value of a compared axis is above or below the first, per metric."""
    told_of = [_against(sweep, metric, key) for metric in metrics for key in named_axes(sweep)]
    return [verdict for verdict in told_of if verdict]


def _against(sweep: SweepRuns, metric: str, key: str) -> str:
    """Count settings in which each value is above or below the first; empty if only one seed was run."""
    by_setting = differences(sweep, metric, key)
    if all(difference.half is None for difference in by_setting.values()):
        return ""
    parts = []
    for text in dict.fromkeys(dict(setting)[key] for setting in by_setting):
        mine = [difference for setting, difference in by_setting.items() if dict(setting)[key] == text]
        sure = [
            difference for difference in mine if difference.half is not None and not difference.holds_zero
        ]
        lower, higher = (
            sum(difference.mean < 0 for difference in sure),
            sum(difference.mean > 0 for difference in sure),
        )
        told_of = [f"{word} in {many}" for word, many in (("lower", lower), ("higher", higher)) if many]
        if open_ones := len(mine) - lower - higher:
            why = (
                "without an interval"
                if any(difference.half is None for difference in mine)
                else "not distinguishable"
            )
            told_of.append(f"{why} in {open_ones}")
        alone = told_of[0].removesuffix(" in 1") if len(mine) == 1 else ""
        shown = alone or f"{', '.join(told_of)} of {counted(len(mine), 'setting')}"
        parts.append(f"{key}={text} is {shown}")
    first = next(axis.texts[0] for axis in sweep.axes if axis.key == key)
    return f"{name_of(metric)} against {key}={first}: {'; '.join(parts)}."


def _settings(sweep: SweepRuns, metrics: Sequence[str]) -> str:
    by_metric = {metric: means(sweep, metric) for metric in metrics}
    keys = [axis.key for axis in sweep.axes if axis.key != SEED] or ["setting"]
    rows = [
        [*([text for _, text in setting] or ["every run"])]
        + [interval_text(metric, by_metric[metric].get(setting)) for metric in metrics]
        for setting in sweep.settings()
    ]
    title = f"Every setting, {'mean over seeds' if has_intervals(sweep) else 'one run each'}"
    title += "" if len(rows) <= _MOST_ROWS else f" (first {_MOST_ROWS})"
    return table(title, [*keys, *map(name_of, metrics)], rows[:_MOST_ROWS], len(keys))


def named_axes(sweep: SweepRuns) -> list[str]:
    """Return the axes whose values are compared: settings that one chooses, as words or as a few numbers.

    What is served (``headline.is_given``: loads, traces) is a condition, under which settings are compared. A
    sweep over nothing but conditions compares those of words, such as traces.
    """
    varied = [axis for axis in sweep.axes if axis.key != SEED and len(axis.texts) > 1]
    words = [axis.key for axis in varied if isinstance(typed(axis.texts)[0], str)]
    compared = [
        axis.key
        for axis in varied
        if not is_given(axis.key) and (axis.key in words or len(axis.texts) <= _FEW_NUMBERS)
    ]
    return compared or [key for key in words if is_given(key)]


def _differences_part(sweep: SweepRuns, metrics: Sequence[str]) -> list[str]:
    parts = []
    for key in named_axes(sweep):
        first = next(axis.texts[0] for axis in sweep.axes if axis.key == key)
        by_metric = {metric: differences(sweep, metric, key) for metric in metrics}
        settings = list(dict.fromkeys(setting for of_metric in by_metric.values() for setting in of_metric))
        rows = [
            [setting_name(setting), name_of(metric), difference_text(metric, by_metric[metric].get(setting))]
            for setting in settings[: _MOST_ROWS // max(1, len(metrics)) + 1]
            for metric in metrics
        ]
        left_out = len(settings) * len(metrics) - len(rows)
        title = f"Against {key}={first}, the same seeds" + (f" (first {len(rows)} rows)" if left_out else "")
        parts.append(table(title, ["setting", "number", "difference"], rows, words=2))
    return parts


def _charts(sweep: SweepRuns, metrics: Sequence[str]) -> str:
    axis = next(
        (candidate for candidate in sweep.axes if _is_numeric(candidate.texts) and candidate.key != SEED),
        None,
    )
    if axis is None:
        return ""
    return charts(f"By {axis.key}", [_chart(sweep, metric, axis.key) for metric in metrics])


def _is_numeric(texts: Sequence[str]) -> bool:
    return len(texts) > 1 and not isinstance(typed(texts)[0], str)


def _chart(sweep: SweepRuns, metric: str, key: str) -> str:
    lines: dict[Values, list[tuple[float, float]]] = {}
    for setting, mean in means(sweep, metric).items():
        rest = tuple((name, text) for name, text in setting if name != key)
        lines.setdefault(rest, []).append((float(dict(setting)[key]), mean.mean))
    drawn = dict(list(lines.items())[:COLORS])
    series = [
        _series(setting, sorted(points), color) for color, (setting, points) in enumerate(drawn.items(), 1)
    ]
    x = _across(key, drawn)
    y = plots.linear_axis(
        name_of(metric), *(line.y for line in series), write=lambda v: value_text(metric, v)
    )
    left_out = len(lines) - len(drawn)
    detail = f"{left_out} more settings are in the table" if left_out else ""
    legend = (
        [(color, setting_name(setting)) for color, setting in enumerate(drawn, 1)] if len(drawn) > 1 else []
    )
    return figure(name_of(metric), detail, plots.line_plot(name_of(metric), series, x, y), legend)


def _series(setting: Values, points: Sequence[tuple[float, float]], color: int) -> plots.Series:
    x, y = np.array(points, dtype=np.float64).T
    return plots.Series(setting_name(setting), x, y, color)


def _across(key: str, lines: Mapping[Values, Sequence[tuple[float, float]]]) -> plots.Axis:
    values = [x for points in lines.values() for x, _ in points]
    if min(values) > 0 and max(values) >= _SPANS_DECADES * min(values):
        return plots.Axis(label=f"{key} (logarithmic)", low=min(values), high=max(values), log=True)
    return (
        plots.Axis(label=key, low=min(values), high=max(values))
        if min(values) < max(values)
        else plots.Axis(label=key, low=min(values) - 1, high=min(values) + 1)
    )
