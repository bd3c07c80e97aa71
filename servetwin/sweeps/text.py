"""Formats settings, means and differences of a sweep."""

from servetwin.report.metric_text import value_text
from servetwin.sweeps.confidence import Interval
from servetwin.sweeps.table import Values


def interval_text(metric: str, interval: Interval | None) -> str:
    """Return the mean and, over several seeds, the half width of its interval."""
    if interval is None:
        return "–"  # noqa: RUF001 (as tables show what is missing)
    return value_text(metric, interval.mean) + (
        "" if interval.half is None else f" ± {value_text(metric, interval.half)}"
    )


def difference_text(metric: str, interval: Interval | None) -> str:
    """Return the difference, with a remark if its interval contains 0."""
    if interval is None:
        return "–"  # noqa: RUF001
    sign = "+" if interval.mean > 0 else "-" if interval.mean < 0 else ""
    text = f"{sign}{_amount(metric, abs(interval.mean))}"
    if interval.half is None:
        return text
    if interval.half == 0 and interval.mean == 0:
        return "none: every seed gave the same"
    return f"{text} ± {_amount(metric, interval.half)}" + (
        " (not distinguishable)" if interval.holds_zero else ""
    )


def _amount(metric: str, value: float) -> str:
    """Return a difference; those of shares are in percentage points."""
    return value_text(metric, value).replace(" %", " points")


def setting_name(setting: Values) -> str:
    """Return the setting's name, ``system=vllm, cluster=a100_x4``."""
    return ", ".join(f"{key}={text}" for key, text in setting) or "every run"
