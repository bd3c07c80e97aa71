"""The answer of a sweep: the best setting, by which number, and which others may be as good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from servetwin.report.metric_text import name_of
from servetwin.report.number_text import counted
from servetwin.sweeps.confidence import Interval
from servetwin.sweeps.table import SweepRuns, Values, above, means
from servetwin.sweeps.text import interval_text, setting_name

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


def judges(metrics: Sequence[str] | None) -> tuple[str, ...]:
    """Return the metrics that rank settings: the first ones of ``metrics=``, or the usual ones without it."""
    return tuple(metrics[:_MOST_JUDGES]) if metrics else USUAL


def headline(sweep: SweepRuns, metrics: Sequence[str]) -> list[str]:
    """Return one sentence per metric with its best setting. Empty for one setting, or if no run has it."""
    return [sentence for metric in metrics if (sentence := _sentence(sweep, metric))]


def is_higher_better(metric: str) -> bool | None:
    """Return whether higher values are better; None: unknown."""
    plain = metric.removesuffix(".low").removesuffix(".high")
    if plain.endswith(_HIGHER):
        return True
    return False if plain.startswith(_LOWER) else None


def _sentence(sweep: SweepRuns, metric: str) -> str:
    by_setting = means(sweep, metric)
    if len(by_setting) < 2:
        return ""
    first, *rest = by_setting.values()
    if all(mean == first for mean in rest):
        return f"{name_of(metric)} is the same in every setting: {interval_text(metric, first)}."
    groups = _groups(by_setting)
    if is_higher_better(metric) is None or all(len(group) == 1 for group in groups.values()):
        return _ends(sweep, metric, by_setting)
    if len(groups) > _MOST_NAMED:
        return _count_wins(metric, groups)
    parts = [_best(sweep, metric, fixed, group) for fixed, group in groups.items()]
    return f"Best by {name_of(metric)}: {'; '.join(parts)}."


def _groups(by_setting: dict[Values, Interval]) -> dict[Values, dict[Values, Interval]]:
    """Map each combination of conditions to its settings."""
    groups: dict[Values, dict[Values, Interval]] = {}
    for setting, mean in by_setting.items():
        groups.setdefault(_conditions(setting), {})[setting] = mean
    return groups


def is_given(key: str) -> bool:
    """Return whether a key is of what is served and wanted, under which settings are compared."""
    return key.partition(".")[0] in _GIVEN


def _conditions(setting: Values) -> Values:
    return tuple(pair for pair in setting if is_given(pair[0]))


def _chosen(setting: Values) -> str:
    return setting_name(tuple(pair for pair in setting if pair not in _conditions(setting)))


def _best_of(metric: str, group: dict[Values, Interval]) -> Values:
    sign = -1 if is_higher_better(metric) else 1
    return min(group, key=lambda setting: sign * group[setting].mean)


def _best(sweep: SweepRuns, metric: str, fixed: Values, group: dict[Values, Interval]) -> str:
    """Return the best setting under the conditions, and those that may be as good."""
    best = _best_of(metric, group)
    where = f"at {setting_name(fixed)} " if fixed else ""
    if len(group) == 1:
        return f"{where}{_chosen(best)} alone ran"
    same = [setting for setting in group if group[setting].mean == group[best].mean]
    answer = f"{where}{_join_settings(same)} ({interval_text(metric, group[best])})"
    as_good = [
        setting for setting in _as_good(sweep, metric, best) if setting in group and setting not in same
    ]
    return f"{answer}, not distinguishable from {_join_settings(as_good)}" if as_good else answer


def _as_good(sweep: SweepRuns, metric: str, best: Values) -> list[Values]:
    """Return settings whose paired difference from ``best`` may be zero."""
    apart = above(sweep, metric, best)
    return [setting for setting, away in apart.items() if away.half is not None and away.holds_zero]


def _join_settings(settings: Sequence[Values]) -> str:
    names = [_chosen(setting) for setting in settings]
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:2])} and {len(names) - 2} others"
    return " and ".join(names)


def _count_wins(metric: str, groups: dict[Values, dict[Values, Interval]]) -> str:
    """Count, for each setting, the cases in which it is best."""
    wins = Counter(_chosen(_best_of(metric, group)) for group in groups.values())
    answer = ", ".join(f"{name} in {many}" for name, many in wins.most_common(_MOST_NAMED))
    keys = " and ".join(key for key, _ in next(iter(groups)))
    return f"Best by {name_of(metric)}: {answer} of {counted(len(groups), 'value')} of {keys}."


def _ends(sweep: SweepRuns, metric: str, by_setting: dict[Values, Interval]) -> str:
    """Return least and most, if there is no choice or it is unknown which direction is better."""
    least, most = (
        min(by_setting, key=lambda setting: by_setting[setting].mean),
        max(by_setting, key=lambda setting: by_setting[setting].mean),
    )
    low, high = (interval_text(metric, by_setting[setting]) for setting in (least, most))
    ends = f"least at {setting_name(least)} ({low}) and most at {setting_name(most)} ({high})"
    as_low = " and ".join(map(setting_name, _as_good(sweep, metric, least)))
    ties = f"; not distinguishable from the least: {as_low}" if as_low else ""
    return f"{name_of(metric)} is {ends}{ties}."
