"""SVG plots without a library: colours and fonts are those of the page's style sheet and its theme."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from servetwin.report.number_text import number

Floats = NDArray[np.float64]

WIDE: Final = 1080
HALF: Final = 528
SLIM: Final = 340  # width of a second copy for narrow screens, with the same text size
HEIGHT: Final = 260
_TRAILING_ZEROS: Final = re.compile(r"(?<=\d)\.0+(?!\d)|(?<=\.)(\d*?[1-9])0+(?!\d)")
_FEW_POINTS: Final = 200
_LETTER: Final = 6.4  # px, the least width of a letter of the text
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 18, 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: data range, label, log or linear, format of ticks, whether only integers are marked."""

    label: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = number
    whole: bool = False

    def place(self, values: Floats, start: float, end: float) -> Floats:
        """Return pixel positions; values beyond the axis are placed at its edge."""
        low, high, data = self.low, self.high, np.clip(values, self.low, self.high)
        if self.log:
            low, high, data = math.log10(low), math.log10(high), np.log10(data)
        placed: Floats = start + (data - low) / (high - low) * (end - start)
        return placed

    def ticks(self) -> list[float]:
        """Return round values in the range: 1-2-5 steps, or decades (with 2 and 5 if there are few)."""
        if not self.log:
            step = _round_step((self.high - self.low) / 6)
            step = max(step, 1.0) if self.whole else step
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [step * position for position in range(first, last + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if math.log10(self.high / self.low) < 3 else (1,)
        every = [factor * 10.0**decade for decade in decades for factor in factors]
        return [tick for tick in every if self.low * 0.999 <= tick <= self.high * 1.001]

    def tick_label(self, value: float) -> str:
        """Return the shortest label of a tick: 10 ms and not 10.0 ms."""
        return _TRAILING_ZEROS.sub(r"\1", self.write(value))


@dataclass(frozen=True, slots=True)
class Series:
    """One line ("line"), staircase with filled area ("area") or cloud ("points"); NaN breaks a line.

    ``color`` is 1, 2 or 3 of the style sheet's palette.
    """

    label: str
    x: Floats
    y: Floats
    color: int = 1
    style: Literal["line", "area", "points"] = "line"


@dataclass(frozen=True, slots=True)
class Band:
    """A filled area between two staircases, each with a value from each of ``x`` on."""

    label: str
    x: Floats
    low: Floats
    y: Floats
    color: int = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """A dashed line across the plot at one value of an axis."""

    axis: Literal["x", "y"]
    value: float
    label: str
    color: int = 0


def linear_axis(
    label: str, *values: Floats, write: Callable[[float], str] = number, whole: bool = False
) -> Axis:
    """Return an axis from 0 to a little above the largest value."""
    high = max((float(np.nanmax(part)) for part in values if len(part)), default=0.0)
    return Axis(label=label, low=0.0, high=high * 1.08 if high > 0 else 1.0, write=write, whole=whole)


def log_axis(label: str, *values: Floats, write: Callable[[float], str] = number) -> Axis:
    """Return a log axis around all positive values, of at least one decade."""
    joined = np.concatenate([np.asarray(part, dtype=np.float64) for part in values])
    positive = joined[np.isfinite(joined) & (joined > 0)]
    if not len(positive):
        return Axis(label=label, low=1.0, high=10.0, log=True, write=write)
    low, high = float(positive.min()) / 1.15, float(positive.max()) * 1.15
    if high < 10 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return Axis(label=label, low=low, high=high, log=True, write=write)


def time_axis(end_s: float) -> tuple[Axis, float]:
    """Return the time axis of a run of ``end_s`` seconds, and the seconds of its unit."""
    if end_s < 300:
        unit, seconds = "s", 1.0
    else:
        unit, seconds = ("min", 60.0) if end_s < 10_800 else ("h", 3600.0)
    return Axis(
        label=f"time since the start ({unit})", low=0.0, high=end_s / seconds if end_s > 0 else 1.0
    ), seconds


def line_plot(
    title: str,
    series: Sequence[Series | Band],
    x: Axis,
    y: Axis,
    *,
    rules: Sequence[Rule] = (),
    width: int = HALF,
) -> str:
    """Draw axes, grid, rules and the series, in order, as two SVG elements: for wide and narrow screens."""
    return _lines(title, series, x, y, rules=rules, width=width) + _lines(
        title, series, x, y, rules=rules, width=SLIM
    )


def _lines(
    title: str, series: Sequence[Series | Band], x: Axis, y: Axis, *, rules: Sequence[Rule], width: int
) -> str:
    right, bottom = width - _RIGHT, HEIGHT - _BOTTOM
    parts = [_frame(x, y, right, bottom)]
    for line in series:
        px, py = x.place(line.x, _LEFT, right), y.place(line.y, bottom, _TOP)
        if isinstance(line, Band):
            low = y.place(line.low, bottom, _TOP)
            back = "".join(f"V{at:.1f}H{before:.1f}" for before, at in zip(px[::-1], low[::-1]))
            parts.append(_staircase(line.color, px, py, right, back))
        else:
            parts.append(_draw(line, px, py, right, bottom))
    parts += [_rule(rule, x, y, right, bottom - 15 * place) for place, rule in enumerate(rules)]
    return _svg(title, width, parts)


def bar_plot(
    title: str,
    labels: Sequence[str],
    values: Floats,
    *,
    x_label: str,
    y: Axis,
    width: int = HALF,
    color: int = 1,
) -> str:
    """Draw upright bars with a tooltip each; if there are many, only some labels are drawn."""
    wide = _bars(title, labels, values, x_label=x_label, y=y, width=width, color=color)
    return wide + _bars(title, labels, values, x_label=x_label, y=y, width=SLIM, color=color)


def _bars(
    title: str, labels: Sequence[str], values: Floats, *, x_label: str, y: Axis, width: int, color: int
) -> str:
    right, bottom = width - _RIGHT, HEIGHT - _BOTTOM
    parts = [_grid(y, right, bottom), _x_label(x_label, right)]
    slot = (right - _LEFT) / max(len(values), 1)
    tops = y.place(np.asarray(values, dtype=np.float64), bottom, _TOP)
    every = max(1, math.ceil(len(labels) * 9 * max(map(len, labels), default=1) / (right - _LEFT)))
    bar = min(slot * 0.72, 56.0)
    for index, (label, value, top) in enumerate(zip(labels, values, tops, strict=True)):
        middle = _LEFT + slot * (index + 0.5)
        tip = f"<title>{escape(label)}: {escape(y.write(value))}</title>"
        parts.append(
            f'<rect class="f{color}" x="{middle - bar / 2:.1f}" y="{top:.1f}" width="{bar:.1f}" '
            f'height="{bottom - top:.1f}" rx="1.5">{tip}</rect>'
        )
        if index % every == 0:
            parts.append(_text(middle, bottom + 16, label, "middle"))
    return _svg(title, width, parts)


def _svg(title: str, width: int, parts: Sequence[str]) -> str:
    body = "".join(parts)
    kind, label = "slim" if width == SLIM else "broad", escape(title)
    return f'<svg class="{kind}" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


def _frame(x: Axis, y: Axis, right: float, bottom: float) -> str:
    marks = [_grid(y, right, bottom), _x_label(x.label, right)]
    free = 0.0
    for tick in x.ticks():
        px, label = float(x.place(np.array([tick]), _LEFT, right)[0]), x.tick_label(tick)
        marks.append(f'<path class="grid" d="M{px:.1f} {bottom}V{_TOP}"/>')
        half = _LETTER * len(label) / 2
        if px - half >= free and px + half <= right + _RIGHT:
            marks.append(_text(px, bottom + 16, label, "middle"))
            free = px + half + _LETTER
    return "".join(marks)


def _grid(y: Axis, right: float, bottom: float) -> str:
    marks = []
    for tick in y.ticks():
        py = float(y.place(np.array([tick]), bottom, _TOP)[0])
        marks.append(f'<path class="grid" d="M{_LEFT} {py:.1f}H{right}"/>')
        marks.append(_text(_LEFT - 8, py + 4, y.tick_label(tick), "end"))
    marks.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>')
    marks.append(_text(8, 10, y.label, "start"))
    return "".join(marks)


def _x_label(label: str, right: float) -> str:
    return _text((_LEFT + right) / 2, HEIGHT - 6, label, "middle")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _draw(series: Series, px: Floats, py: Floats, right: float, bottom: float) -> str:
    if series.style == "points":
        known = np.isfinite(py)
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in zip(px[known], py[known]))
        size = 7 if len(px) < _FEW_POINTS else 4
        return f'<path class="p{series.color}" stroke-width="{size}" d="{dots}"/>' if dots else ""
    if series.style == "area":
        return _staircase(series.color, px, py, right, f"V{bottom}H{px[0]:.1f}") if len(px) else ""
    steps, pen = [], "M"
    for x, y in zip(px, py):
        if math.isfinite(y):
            steps.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return f'<path class="l{series.color}" d="{"".join(steps)}"/>' if steps else ""


def _staircase(color: int, px: Floats, py: Floats, right: float, back: str) -> str:
    """Draw steps up to ``right``, and the area between them and the path ``back`` to the first point."""
    line = f"M{px[0]:.1f} {py[0]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(px[1:], py[1:]))
    line += f"H{right:.1f}"
    return f'<path class="a{color}" d="{line}{back}Z"/><path class="l{color}" d="{line}"/>'


def _rule(rule: Rule, x: Axis, y: Axis, right: float, label_bottom: float) -> str:
    """Draw the line and its label; ``label_bottom`` keeps the labels of upright rules apart."""
    axis, bottom = (x if rule.axis == "x" else y), HEIGHT - _BOTTOM
    if not axis.low <= rule.value <= axis.high:
        return ""
    value = np.array([rule.value])
    if rule.axis == "y":
        py = float(y.place(value, bottom, _TOP)[0])
        label = _text(right - 4, py - 5 if py > _TOP + 14 else py + 13, rule.label, "end")
        return f'<g class="rule r{rule.color}"><path d="M{_LEFT} {py:.1f}H{right}"/>{label}</g>'
    px = float(x.place(value, _LEFT, right)[0])
    is_last = px + 5 + _LETTER * len(rule.label) > right
    at, anchor = (px - 5, "end") if is_last else (px + 5, "start")
    label = _text(at, label_bottom - 12, rule.label, anchor)
    return f'<g class="rule r{rule.color}"><path d="M{px:.1f} {bottom}V{_TOP}"/>{label}</g>'


def _round_step(rough: float) -> float:
    """Return the 1-2-5 number at or above ``rough``."""
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough * 0.999)
