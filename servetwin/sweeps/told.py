"""Formats settings, means and differences of a sweep."""

from servetwin.report.metric_text import told
from servetwin.sweeps.student import Interval
from servetwin.sweeps.table import Values


def told_interval(metric: str, one: Interval | None) -> str:
    """Return the mean and, over several seeds, the half width of its interval."""
    if one is None:
        return "–"  # noqa: RUF001 (as tables show what is missing)
    return told(metric, one.mean) + ("" if one.half is None else f" ± {told(metric, one.half)}")


def told_difference(metric: str, one: Interval | None) -> str:
    """Return the difference, with a remark if its interval contains 0."""
    if one is None:
        return "–"  # noqa: RUF001
    sign = "+" if one.mean > 0 else "-" if one.mean < 0 else ""
    text = f"{sign}{_amount(metric, abs(one.mean))}"
    if one.half is None:
        return text
    if one.half == 0 and one.mean == 0:
        return "none: every seed gave the same"
    return f"{text} ± {_amount(metric, one.half)}" + (" (not distinguishable)" if one.holds_zero else "")


def _amount(metric: str, value: float) -> str:
    """Return a difference; those of shares are in percentage points."""
    return told(metric, value).replace(" %", " points")


def setting_name(setting: Values) -> str:
    """Return the setting's name, ``system=vllm, cluster=a100_x4``."""
    return ", ".join(f"{key}={text}" for key, text in setting) or "every run"
