"""What a reproduced figure consists of: judged rows, plain levels beside them, and what is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["in band", "out", "not comparable"]


@dataclass(frozen=True, slots=True)
class Row:
    """One statement of a paper beside what we measured.

    ratio: ours over the paper's (its nearest end, where that is a range); None where there is no number.
    stand_in: what stood in for something of the paper that cannot be had. why: what was measured; never empty
    when the verdict is "out" or "not comparable".
    """

    name: str
    paper: str
    ours: str
    ratio: float | None
    verdict: Verdict
    stand_in: str
    why: str

    def __post_init__(self) -> None:
        assert self.verdict == "in band" or self.why, f"{self.name}: {self.verdict} and no word why"


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) of one line of a panel; style: as matplotlib writes it (``-``, ``--``, ``o``)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "-"


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a paper. inputs: what it was made from, sentences. levels: plain numbers, unjudged."""

    name: str
    title: str
    rows: tuple[Row, ...]
    panels: tuple[Panel, ...] = ()
    inputs: tuple[str, ...] = ()
    levels: tuple[Mapping[str, str], ...] = ()
