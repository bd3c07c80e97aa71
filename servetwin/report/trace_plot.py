"""The picture of ``servetwin traces describe``: rate over time, counts, and both lengths."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from servetwin.report.picture import new_figure, require_picture, save
from traces.counts import BIN_S, arrival_counts
from traces.description import Description
from traces.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS_SHOWN: Final = 720
_LONGEST_LABEL: Final = 140


def plot(workload: Workload, description: Description, path: Path) -> None:
    """Write the picture; UserError if ``path`` is not a picture or cannot be written."""
    require_picture(path)
    figure = new_figure(11, 6.5)
    (rate, gaps), (lengths, counts) = figure.subplots(2, 2)
    title = f"{description.name}: {description.requests:,} requests in {description.duration_s:,.0f} s"
    changed = f"\n{'; '.join(description.labels)}"[:_LONGEST_LABEL] if description.labels else ""
    figure.suptitle(title + changed, fontsize="medium")
    _rate(rate, workload)
    _gaps(gaps, workload, description)
    _lengths(lengths, workload)
    _counts(counts, workload, description)
    save(figure, path, dpi=120)


def _rate(axes: "Axes", workload: Workload) -> None:
    bin_s = max(1.0, workload.duration_s / _BINS_SHOWN)
    per_s = arrival_counts(workload, bin_s) / bin_s
    unit, seconds = _unit(workload.duration_s)
    axes.stairs(per_s, np.arange(len(per_s) + 1) * bin_s / seconds, fill=True)
    axes.set(
        xlabel=f"time ({unit})", ylabel="requests/s", title=f"arrivals per {bin_s:.3g} s", ylim=(0, None)
    )


def _gaps(axes: "Axes", workload: Workload, description: Description) -> None:
    gaps_s = np.sort(np.diff(workload.arrival_ns)) / 1e9
    _distribution(axes, np.maximum(gaps_s, 1e-6), "gap")
    cv = "" if description.gap_cv is None else f", CV {description.gap_cv:.3g}"
    axes.set(xscale="log", xlabel="gap between arrivals (s)", ylabel="share below", title=f"gaps{cv}")


def _lengths(axes: "Axes", workload: Workload) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        values = np.sort(getattr(workload, name)).astype(np.float64)
        _distribution(axes, values, f"{name.partition('_')[0]}, mean {values.mean():,.4g}")
    axes.set(xscale="log", xlabel="tokens", ylabel="share below", title="lengths")
    axes.legend(loc="best", frameon=False)


def _counts(axes: "Axes", workload: Workload, description: Description) -> None:
    counts = arrival_counts(workload, BIN_S)
    step = max(
        1, -(-(int(counts.max()) - int(counts.min()) + 1) // 60)
    )  # bins of whole counts: none is empty by chance
    axes.hist(counts, bins=(np.arange(counts.min(), counts.max() + step + 1, step) - 0.5).tolist())
    title = f"burst index {description.burst_index:.3g}, peak/mean {description.counts.peak_to_mean:.3g}"
    axes.set(xlabel=f"requests per {BIN_S:g} s", ylabel="how often", title=title, yscale="log")


def _distribution(axes: "Axes", ordered: NDArray[Any], label: str) -> None:
    """Draw the share below each value, with at most a few thousand points."""
    if len(ordered):
        at = np.unique(np.linspace(0, len(ordered) - 1, 4000).astype(np.int64))
        axes.step(ordered[at], (at + 1) / len(ordered), where="post", label=label)
    axes.set_ylim(0, 1)


def _unit(duration_s: float) -> tuple[str, float]:
    for unit, seconds in (("days", 86_400.0), ("hours", 3600.0), ("min", 60.0)):
        if duration_s >= 4 * seconds:
            return unit, seconds
    return "s", 1.0
