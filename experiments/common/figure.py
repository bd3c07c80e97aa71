"""What a reproduced figure consists of: judged rows, plain levels beside them, and what is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

Verdict = Literal[
    "in band", "out", "not shown", "not comparable",
    "direction held", "direction not held", "direction not shown",
]  # fmt: skip
"""The last three are verdicts on changes of less than 5 %, of which no size is judged."""
Kind = Literal["paper_number", "paper_direction", "own_analysis"]
"""Held against a number of the paper, its words or a drawing without one, or an analysis of our own."""
HELD: Final = ("in band", "direction held")
FAILED: Final = ("out", "direction not held")
MISSED: Final = (*FAILED, "not shown", "direction not shown")
Key = tuple[str, str]
"""(kind, set-up or figure) of a sweep in sweeps.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The numbers a verdict was made from, so that it can be made again without the runs.

    low, high, slack, against, strict: those of the claim (``experiments.common.verdict.Claim``). ours: the
    mean over the seeds, or the exact number. interval: its ends; None for an exact number or a single seed.
    exact: ours has no error, so no interval is asked for.
    """

    low: float
    high: float
    slack: float
    against: float | None
    strict: bool
    ours: float
    interval: tuple[float, float] | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One statement of a paper beside what we measured.

    ratio: ours over the paper's (its nearest end, where that is a range); None where there is no number.
    stand_in: what stood in for something of the paper that cannot be had. why: what was measured; never empty
    unless the claim holds. saved: sweeps that keep the number and what moves it. judged: what the verdict
    was made from; None for an order, and for rows without a claim in numbers.
    """

    name: str
    paper: str
    ours: str
    ratio: float | None
    verdict: Verdict
    stand_in: str = ""
    why: str
    saved: tuple[Key, ...] = ()
    kind: Kind = "own_analysis"
    judged: Judged | None = None

    def __post_init__(self) -> None:
        assert self.verdict in HELD or self.why, f"{self.name}: {self.verdict} and no word why"


@dataclass(frozen=True, slots=True)
class PlotLine:
    """Points (x, y) of one line of a panel; style: as matplotlib writes it (``-``, ``--``, ``o``)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "-"


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes. ticks: names of the places 0, 1, ... where x is no quantity."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[PlotLine, ...]
    _: KW_ONLY
    log_x: bool = False
    log_y: bool = False
    ticks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One point that a figure draws: one value per seed, and the paper's where it is known."""

    panel: str
    metric: str
    system: str
    x: float
    values: tuple[float, ...]
    _: KW_ONLY
    paper: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a paper. inputs: sentences that state what it was made from.

    levels: numbers that are shown beside the rows and compared with no claim. sweeps: the figure's own
    numbers for sweeps.json, which has those of runs and their sweeps in any case. numbers: all numbers that
    the figure draws, for points.csv. columns: the number of columns of panels in the picture. share_y: the
    panels of a row have one scale.
    """

    name: str
    title: str
    rows: tuple[FigureRow, ...]
    _: KW_ONLY
    panels: tuple[Panel, ...] = ()
    inputs: tuple[str, ...] = ()
    levels: tuple[Mapping[str, str], ...] = ()
    sweeps: Mapping[Key, Any] = field(default_factory=dict)
    numbers: tuple[MeasuredPoint, ...] = ()
    columns: int = 2
    share_y: bool = False

    def __post_init__(self) -> None:
        silent = [row.name for row in self.rows if row.verdict in MISSED and not row.saved]
        assert not silent, f"{self.name}: missed, and no saved sweep is named: {silent}"
