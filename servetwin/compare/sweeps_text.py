"""Presents the comparison of several sweeps: for the console, one page, and programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Final

from servetwin.compare.sweep_table import Values
from servetwin.compare.sweeps import Against, SweepsBeside
from servetwin.report import page_parts
from servetwin.report.answer_page import answer, command, page, table
from servetwin.report.metric_text import name_of
from servetwin.report.number_text import counted
from servetwin.sweeps.confidence import Interval
from servetwin.sweeps.headline import USUAL
from servetwin.sweeps.text import difference_text, interval_text

_FOOT: Final = (
    "Differences are against the first sweep, seed by seed: the same seed has the same arrivals. "
    "Intervals are 95 % of Student's t over the seeds; of one seed there is none."
)
SAME: Final = "the same"
_LONGEST: Final = 160


def sentences(comparison: SweepsBeside) -> list[str]:
    """Return, per sweep, in how many settings its usual numbers are lower or higher."""
    return [
        _sentence(comparison, name, beside)
        for name, beside in zip(comparison.names[1:], comparison.against, strict=True)
    ]


def _sentence(comparison: SweepsBeside, name: str, beside: Against) -> str:
    start = f"{name} against {comparison.names[0]}, {counted(beside.points, 'point')} paired:"
    if _is_copy(beside):
        return f"{start} every number is the same."
    known = dict.fromkeys(metric for of in beside.differences.values() for metric in of)
    judged = [metric for metric in USUAL if metric in known] or list(known)[:1]
    counts = [_count_verdicts(beside, metric) for metric in judged]
    return f"{start} {'; '.join(counts) or 'no number is in both'}."


def _count_verdicts(beside: Against, metric: str) -> str:
    """Return in how many settings the number is lower, higher or neither."""
    verdicts = Counter(_verdict(of[metric]) for of in beside.differences.values() if metric in of)
    verdict_text = ", ".join(f"{verdict} in {count}" for verdict, count in verdicts.items())
    return f"{name_of(metric)} is {verdict_text} of {counted(len(beside.differences), 'setting')}"


def _verdict(interval: Interval) -> str:
    if _is_same(interval):
        return SAME
    if interval.half is None:
        return "lower (one seed, no interval)" if interval.mean < 0 else "higher (one seed, no interval)"
    return "not distinguishable" if interval.holds_zero else "lower" if interval.mean < 0 else "higher"


def _is_copy(beside: Against) -> bool:
    """Return whether all numbers are equal in every setting."""
    return all(_is_same(apart) for of in beside.differences.values() for apart in of.values())


def _is_same(interval: Interval) -> bool:
    return interval.mean == 0 and interval.half in (None, 0)


def remarks(comparison: SweepsBeside) -> list[str]:
    """Return points that only one sweep has, and words that only one sweep was run with."""
    lines, first = [], comparison.names[0]
    for name, beside in zip(comparison.names[1:], comparison.against, strict=True):
        of_first, of_other = (counted(count, "point") for count in beside.left_out)
        if any(beside.left_out):
            lines.append(
                f"left out, since only one of the two has them: {of_first} of {first}, {of_other} of {name}"
            )
        lines += [
            f"only {whose}: {' '.join(words)}"
            for whose, words in zip((first, name), beside.words, strict=True)
            if words
        ]
    return list(dict.fromkeys(lines))


def head(comparison: SweepsBeside) -> list[str]:
    """Return the columns of the table."""
    first, rest = comparison.names[0], [name for name, _ in _differing(comparison)]
    return ["setting", "number", first, *(part for name in rest for part in (name, f"{name} - {first}"))]


def _differing(comparison: SweepsBeside) -> list[tuple[str, Against]]:
    """Return the sweeps that differ from the first: the table shows these."""
    pairs = zip(comparison.names[1:], comparison.against, strict=True)
    return [(name, pair) for name, pair in pairs if not _is_copy(pair)]


def rows(comparison: SweepsBeside) -> list[list[str]]:
    """Return one row per setting and number; settings without differences share one row."""
    differing = _differing(comparison)
    if not differing:
        return []
    settings = [
        setting for setting in comparison.means if any(setting in other.differences for _, other in differing)
    ]
    alike = [setting for setting in settings if _all_same(differing, setting)]
    lines = [
        _row(comparison, setting, metric)
        for setting in settings
        if setting not in alike
        for metric in comparison.metrics
        if metric in comparison.means[setting]
    ]
    if alike:
        lines.append([_join_settings(alike), "every number", "", *(["", "none"] * len(differing))])
    return lines


def _join_settings(settings: list[Values]) -> str:
    """Return the first settings and the number of all."""
    text = "; ".join(map(setting_name, settings))
    if len(text) <= _LONGEST:
        return text
    return f"{setting_name(settings[0])} and {len(settings) - 1} more settings"


def _all_same(differing: list[tuple[str, Against]], setting: Values) -> bool:
    """Return whether every sweep has the setting, with the first sweep's numbers."""
    apart = [beside.differences.get(setting) for _, beside in differing]
    return all(of is not None and all(map(_is_same, of.values())) for of in apart)


def _row(comparison: SweepsBeside, setting: Values, metric: str) -> list[str]:
    line = [setting_name(setting), name_of(metric), interval_text(metric, comparison.means[setting][metric])]
    for _, beside in _differing(comparison):
        apart = beside.differences.get(setting, {}).get(metric)
        line.append(interval_text(metric, beside.means.get(setting, {}).get(metric)))
        line.append(_difference_text(metric, apart))
    return line


def _difference_text(metric: str, apart: Interval | None) -> str:
    if apart is None or _is_same(apart):
        return "" if apart is None else "none"
    return f"{difference_text(metric, apart)}, {counted(apart.count, 'seed')}"


def setting_name(setting: Values) -> str:
    """Return the setting's name, ``system=vllm, cluster=a100_x4``."""
    return ", ".join(f"{key}={value}" for key, value in setting) or "every run"


def as_page(comparison: SweepsBeside, words: str) -> str:
    """Return the HTML of the whole page."""
    parts = [*map(answer, sentences(comparison)), page_parts.remarks(remarks(comparison), "said")]
    if lines := rows(comparison):
        parts.append(table("Numbers, mean over seeds", head(comparison), lines, words=2))
    return page("Comparison of sweeps", " · ".join(comparison.names), "", [*parts, command(words)], _FOOT)


def as_data(comparison: SweepsBeside) -> dict[str, Any]:
    """Return the same as data for programs."""
    against = [
        {
            "sweep": name,
            "points": beside.points,
            "left_out": {"first": beside.left_out[0], "this": beside.left_out[1]},
            "words": {"only_first": list(beside.words[0]), "only_this": list(beside.words[1])},
            "differences": [
                {"setting": dict(setting), "metric": metric, **asdict(apart)}
                for setting, of in beside.differences.items()
                for metric, apart in of.items()
            ],
        }
        for name, beside in zip(comparison.names[1:], comparison.against, strict=True)
    ]
    return {"first": comparison.names[0], "against_the_first": against}
