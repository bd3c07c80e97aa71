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
from servetwin.sweeps.headline import USUAL
from servetwin.sweeps.student import Interval
from servetwin.sweeps.told import told_difference, told_interval

_FOOT: Final = (
    "Differences are against the first sweep, seed by seed: the same seed has the same arrivals. "
    "Intervals are 95 % of Student's t over the seeds; of one seed there is none."
)
SAME: Final = "the same"
_LONGEST: Final = 160


def sentences(found: SweepsBeside) -> list[str]:
    """Return, per sweep, in how many settings its usual numbers are lower or higher."""
    return [_sentence(found, name, one) for name, one in zip(found.names[1:], found.against, strict=True)]


def _sentence(found: SweepsBeside, name: str, one: Against) -> str:
    start = f"{name} against {found.names[0]}, {counted(one.points, 'point')} paired:"
    if _is_copy(one):
        return f"{start} every number is the same."
    known = dict.fromkeys(metric for of in one.differences.values() for metric in of)
    judged = [metric for metric in USUAL if metric in known] or list(known)[:1]
    told = [_counted(one, metric) for metric in judged]
    return f"{start} {'; '.join(told) or 'no number is in both'}."


def _counted(one: Against, metric: str) -> str:
    """Return in how many settings the number is lower, higher or neither."""
    verdicts = Counter(_verdict(of[metric]) for of in one.differences.values() if metric in of)
    told = ", ".join(f"{verdict} in {count}" for verdict, count in verdicts.items())
    return f"{name_of(metric)} is {told} of {counted(len(one.differences), 'setting')}"


def _verdict(one: Interval) -> str:
    if _is_same(one):
        return SAME
    if one.half is None:
        return "lower (one seed, no interval)" if one.mean < 0 else "higher (one seed, no interval)"
    return "not distinguishable" if one.holds_zero else "lower" if one.mean < 0 else "higher"


def _is_copy(one: Against) -> bool:
    """Return whether all numbers are equal in every setting."""
    return all(_is_same(apart) for of in one.differences.values() for apart in of.values())


def _is_same(one: Interval) -> bool:
    return one.mean == 0 and one.half in (None, 0)


def remarks(found: SweepsBeside) -> list[str]:
    """Return points that only one sweep has, and words that only one sweep was run with."""
    lines, first = [], found.names[0]
    for name, one in zip(found.names[1:], found.against, strict=True):
        of_first, of_other = (counted(count, "point") for count in one.left_out)
        if any(one.left_out):
            lines.append(
                f"left out, since only one of the two has them: {of_first} of {first}, {of_other} of {name}"
            )
        lines += [
            f"only {whose}: {' '.join(words)}"
            for whose, words in zip((first, name), one.words, strict=True)
            if words
        ]
    return list(dict.fromkeys(lines))


def head(found: SweepsBeside) -> list[str]:
    """Return the columns of the table."""
    first, others = found.names[0], [name for name, _ in _differing(found)]
    return ["setting", "number", first, *(part for name in others for part in (name, f"{name} - {first}"))]


def _differing(found: SweepsBeside) -> list[tuple[str, Against]]:
    """Return the sweeps that differ from the first: the table shows these."""
    pairs = zip(found.names[1:], found.against, strict=True)
    return [(name, one) for name, one in pairs if not _is_copy(one)]


def rows(found: SweepsBeside) -> list[list[str]]:
    """Return one row per setting and number; settings without differences share one row."""
    differing = _differing(found)
    if not differing:
        return []
    settings = [one for one in found.means if any(one in other.differences for _, other in differing)]
    alike = [setting for setting in settings if _all_same(differing, setting)]
    lines = [
        _row(found, setting, metric)
        for setting in settings
        if setting not in alike
        for metric in found.metrics
        if metric in found.means[setting]
    ]
    if alike:
        lines.append([_listed(alike), "every number", "", *(["", "none"] * len(differing))])
    return lines


def _listed(settings: list[Values]) -> str:
    """Return the first settings and the number of all."""
    text = "; ".join(map(setting_name, settings))
    if len(text) <= _LONGEST:
        return text
    return f"{setting_name(settings[0])} and {len(settings) - 1} more settings"


def _all_same(differing: list[tuple[str, Against]], setting: Values) -> bool:
    """Return whether every sweep has the setting, with the first sweep's numbers."""
    apart = [one.differences.get(setting) for _, one in differing]
    return all(of is not None and all(map(_is_same, of.values())) for of in apart)


def _row(found: SweepsBeside, setting: Values, metric: str) -> list[str]:
    line = [setting_name(setting), name_of(metric), told_interval(metric, found.means[setting][metric])]
    for _, one in _differing(found):
        apart = one.differences.get(setting, {}).get(metric)
        line.append(told_interval(metric, one.means.get(setting, {}).get(metric)))
        line.append(_told(metric, apart))
    return line


def _told(metric: str, apart: Interval | None) -> str:
    if apart is None or _is_same(apart):
        return "" if apart is None else "none"
    return f"{told_difference(metric, apart)}, {counted(apart.count, 'seed')}"


def setting_name(setting: Values) -> str:
    """Return the setting's name, ``system=vllm, cluster=a100_x4``."""
    return ", ".join(f"{key}={value}" for key, value in setting) or "every run"


def as_page(found: SweepsBeside, words: str) -> str:
    """Return the HTML of the whole page."""
    parts = [*map(answer, sentences(found)), page_parts.remarks(remarks(found))]
    if lines := rows(found):
        parts.append(table("Numbers, mean over seeds", head(found), lines, words=2))
    return page("Comparison of sweeps", " · ".join(found.names), "", [*parts, command(words)], _FOOT)


def as_data(found: SweepsBeside) -> dict[str, Any]:
    """Return the same as data for programs."""
    against = [
        {
            "sweep": name,
            "points": one.points,
            "left_out": {"first": one.left_out[0], "this": one.left_out[1]},
            "words": {"only_first": list(one.words[0]), "only_this": list(one.words[1])},
            "differences": [
                {"setting": dict(setting), "metric": metric, **asdict(apart)}
                for setting, of in one.differences.items()
                for metric, apart in of.items()
            ],
        }
        for name, one in zip(found.names[1:], found.against, strict=True)
    ]
    return {"first": found.names[0], "against_the_first": against}
