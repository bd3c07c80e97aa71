"""What a figure shows: panels with lines, before anything is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points of one line in order of x; ``low`` and ``high``: ends of an interval at each point, if known.

    ``shape``: ``line`` from point to point, ``steps`` that hold a value until the next x, or ``points``
    alone, where x is no quantity.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    shape: Literal["line", "steps", "points"] = "line"
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes. ``ticks``: names of the places 0, 1, ... where x is no quantity.

    ``is_share``: y is at most 1. ``whole_y``: y counts things, so its ticks are whole numbers.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    ticks: tuple[str, ...] = ()
    is_share: bool = False
    whole_y: bool = False
