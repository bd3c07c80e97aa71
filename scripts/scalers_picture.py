"""python -m scripts.scalers_picture: the picture of docs/contributing/lab/SCALERS, from its table.

Each scaler stands twice in each panel: with pooled processes (filled), and with pods of 103 s (hollow).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servetwin.report.picture import new_figure, save

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "contributing" / "lab" / "SCALERS.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "scalers.png"
TRACES: Final = ("constant", "diurnal", "bursts")
_ROW: Final = re.compile(r"(?m)^\| (`[^|]*) \|((?: [\d.]+ / [\d.]+(?: %)? \|){9})$")
_MARKERS: Final = "osD^v<>PXph*8dH"


@dataclass(frozen=True, slots=True)
class Point:
    """A scaler on one trace: per cent served well and GPU time over the bound, (pooled, pods of 103 s)."""

    scaler: str
    trace: str
    served_percent: tuple[float, float]
    over_bound: tuple[float, float]


def points_of(page: str) -> list[Point]:
    """The rows of the table, a point for each trace."""
    found = []
    for name, cells in _ROW.findall(page):
        pairs = [(float(one), float(two)) for one, two in re.findall(r"([\d.]+) / ([\d.]+)", cells)]
        for place, trace in enumerate(TRACES):
            served, over, _ = pairs[3 * place : 3 * place + 3]
            found.append(Point(name.replace("`", "").removeprefix("system="), trace, served, over))
    return found


def draw(points: list[Point], path: Path) -> None:
    """Write the picture to ``path``."""
    from matplotlib import colormaps

    figure = new_figure(13, 4.6)
    axes = figure.subplots(1, len(TRACES), sharey=True)
    names, colors = list(dict.fromkeys(point.scaler for point in points)), colormaps["tab20"]
    for place, trace in enumerate(TRACES):
        for point in points:
            if point.trace == trace:
                number = names.index(point.scaler)
                color, marker = colors(number), _MARKERS[number % len(_MARKERS)]
                for kind, filled in ((0, color), (1, "none")):
                    axes[place].plot(
                        point.over_bound[kind], point.served_percent[kind], marker, color=color,
                        markerfacecolor=filled, label=point.scaler if kind == 0 else None,
                    )  # fmt: skip
        axes[place].set(title=trace, xlabel="GPU time over the lower bound", xlim=(0.8, None), ylim=(0, 102))
        axes[place].grid(alpha=0.3)
    axes[0].set_ylabel("% of requests served well")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    save(figure, path, dpi=75)


def main() -> None:
    """Draw the picture of the page."""
    draw(points_of(PAGE.read_text(encoding="utf-8")), PICTURE)
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
