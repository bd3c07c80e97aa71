"""The answer of a sweep: the best setting, by which number, and which others may be as good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from servetwin.report.metric_text import name_of
from servetwin.report.number_text import counted
from servetwin.sweeps.student import Interval
from servetwin.sweeps.table import Sweep, Values, above, means
from servetwin.sweeps.told import setting_name, told_interval

# The metrics if the user names none: objectives met, then the slowest first tokens.
USUAL: Final = ("slo.attainment", "ttft_ms.p99")
_MOST_JUDGES: Final = 3
# Conditions that the user does not choose: the best setting is reported for each of their values.
_GIVEN: Final = ("trace", "faults", "slo", "models")
_HIGHER: Final = ("attainment", "_per_s", "requests.finished", "hit_share")
_LOWER: Final = (
    "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "gpu_seconds", "duration_s", "energy", "preemptions",
    "requests.rejected", "requests.failed",
)  # fmt: skip
_MOST_NAMED: Final = 4


def judges(asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the metrics that rank settings: those of ``metrics=``, else the usual ones."""
    return tuple(asked[:_MOST_JUDGES]) if asked else USUAL


def headline(sweep: Sweep, metrics: Sequence[str]) -> list[str]:
    """Return one sentence per metric with its best setting. Empty for one setting, or if no run has it."""
    return [sentence for metric in metrics if (sentence := _sentence(sweep, metric))]


def is_higher_better(metric: str) -> bool | None:
    """Return whether higher values are better; None: unknown."""
    plain = metric.removesuffix(".low").removesuffix(".high")
    if plain.endswith(_HIGHER):
        return True
    return False if plain.startswith(_LOWER) else None


def _sentence(sweep: Sweep, metric: str) -> str:
    found = means(sweep, metric)
    if len(found) < 2:
        return ""
    first, *others = found.values()
    if all(one == first for one in others):
        return f"{name_of(metric)} is the same in every setting: {told_interval(metric, first)}."
    groups = _groups(found)
    if is_higher_better(metric) is None or all(len(group) == 1 for group in groups.values()):
        return _ends(sweep, metric, found)
    if len(groups) > _MOST_NAMED:
        return _counted(metric, groups)
    parts = [_best(sweep, metric, given, group) for given, group in groups.items()]
    return f"Best by {name_of(metric)}: {'; '.join(parts)}."


def _groups(found: dict[Values, Interval]) -> dict[Values, dict[Values, Interval]]:
    """Map each combination of conditions to its settings."""
    groups: dict[Values, dict[Values, Interval]] = {}
    for setting, one in found.items():
        groups.setdefault(_given(setting), {})[setting] = one
    return groups


def _given(setting: Values) -> Values:
    return tuple(pair for pair in setting if pair[0].partition(".")[0] in _GIVEN)


def _chosen(setting: Values) -> str:
    return setting_name(tuple(pair for pair in setting if pair not in _given(setting)))


def _best_of(metric: str, group: dict[Values, Interval]) -> Values:
    sign = -1 if is_higher_better(metric) else 1
    return min(group, key=lambda setting: sign * group[setting].mean)


def _best(sweep: Sweep, metric: str, given: Values, group: dict[Values, Interval]) -> str:
    """Return the best setting under the conditions, and those that may be as good."""
    best = _best_of(metric, group)
    where = f"at {setting_name(given)} " if given else ""
    if len(group) == 1:
        return f"{where}{_chosen(best)} alone ran"
    same = [one for one in group if group[one].mean == group[best].mean]
    told = f"{where}{_named(same)} ({told_interval(metric, group[best])})"
    as_good = [one for one in _as_good(sweep, metric, best) if one in group and one not in same]
    return f"{told}, not distinguishable from {_named(as_good)}" if as_good else told


def _as_good(sweep: Sweep, metric: str, best: Values) -> list[Values]:
    """Return settings whose paired difference from ``best`` may be zero."""
    apart = above(sweep, metric, best)
    return [one for one, away in apart.items() if away.half is not None and away.holds_zero]


def _named(settings: Sequence[Values]) -> str:
    names = [_chosen(one) for one in settings]
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:2])} and {len(names) - 2} others"
    return " and ".join(names)


def _counted(metric: str, groups: dict[Values, dict[Values, Interval]]) -> str:
    """Count, for each setting, the cases in which it is best."""
    wins = Counter(_chosen(_best_of(metric, group)) for group in groups.values())
    told = ", ".join(f"{name} in {many}" for name, many in wins.most_common(_MOST_NAMED))
    keys = " and ".join(key for key, _ in next(iter(groups)))
    return f"Best by {name_of(metric)}: {told} of {counted(len(groups), 'value')} of {keys}."


def _ends(sweep: Sweep, metric: str, found: dict[Values, Interval]) -> str:
    """Return least and most, if there is no choice or it is unknown which direction is better."""
    least, most = min(found, key=lambda one: found[one].mean), max(found, key=lambda one: found[one].mean)
    low, high = (told_interval(metric, found[one]) for one in (least, most))
    ends = f"least at {setting_name(least)} ({low}) and most at {setting_name(most)} ({high})"
    as_low = " and ".join(map(setting_name, _as_good(sweep, metric, least)))
    more = f"; not distinguishable from the least: {as_low}" if as_low else ""
    return f"{name_of(metric)} is {ends}{more}."
