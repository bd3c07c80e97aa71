"""Points of the paper's figures, read from a folder that the project does not have."""

import csv
import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servetwin.config.read_file import text_in
from serving.vocabulary.errors import UserError

VARIABLE: Final = "SERVETWIN_FIGURES"
FILE: Final = "llumnix_points.csv"
COLUMNS: Final = ("figure", "panel", "metric", "system", "x", "y")
Key = tuple[str, str, str, str, float]
"""(figure, panel, metric, system, x)"""


@dataclass(frozen=True, slots=True)
class Points:
    """y by figure, panel, metric, system and x; source: the file, or that there is none."""

    source: str
    values: Mapping[Key, float] = field(default_factory=dict)

    def at(self, figure: str, panel: str, metric: str, system: str, x: float) -> float | None:
        """The point; None where the file has none."""
        return self.values.get((figure, panel, metric, system, x))


def read_points() -> Points:
    """Read the points from the folder that the variable names. UserError if it is set without the file."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return Points(f"no points of the paper's figures are here ({VARIABLE} is not set): ours stand alone")
    path = Path(folder, FILE)
    try:
        lines = csv.DictReader(io.StringIO(text_in(path), newline=""))
        if tuple(lines.fieldnames or ()) != COLUMNS:
            raise UserError(f"{path}: its first line must be {','.join(COLUMNS)}")
        values = dict(_point(path, number, line) for number, line in enumerate(lines, 2))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{VARIABLE} names a folder without a readable {FILE}: {error}") from error
    return Points(f"{len(values)} points of the paper's figures from {FILE}", values)


def _point(path: Path, number: int, line: Mapping[str, str]) -> tuple[Key, float]:
    try:
        x, y = float(line["x"]), float(line["y"])
    except (TypeError, ValueError):
        x = y = math.nan
    if not (math.isfinite(x) and math.isfinite(y)):
        raise UserError(f"{path}, line {number}: x and y must be numbers, not {line['x']} and {line['y']}")
    return (line["figure"], line["panel"], line["metric"], line["system"], x), y
