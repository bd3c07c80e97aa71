"""Use of GPUs, links and host memory over time, as charts of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from servetwin.report import plots
from servetwin.report.figures import figure
from servetwin.report.number_text import number
from servetwin.results.use_over_time import BUSY, HOST, LOAD, MEAN, MOST, TIME

_MOST_POINTS: Final = 240
_SHARES: Final = ((1, "load", LOAD), (2, "busy", BUSY))
_LINKS: Final = {
    "nvlink": "NVLink", "pcie": "PCIe", "pcie_switch": "PCIe switches", "nic": "NICs",
    "leaf": "leaf switches", "spine": "spines", "dram": "host memory", "ssd": "SSDs",
    "remote": "remote store",
}  # fmt: skip


def use_section(use: Mapping[str, Any] | None) -> str:
    """Return the charts' HTML; empty without series. ``use``: columns of use_series.parquet."""
    if use is None or not len(use[TIME]):
        return ""
    kinds = [name.removesuffix(MEAN) for name in use if name.endswith(MEAN)]
    cards = [_gpus(use), *(_link(use, kind) for kind in kinds), _host(use)]
    return f'<h2>Use over time</h2><section class="grid2">{"".join(cards)}</section>'


def _gpus(use: Mapping[str, Any]) -> str:
    """Draw load and busy share together: GPUs can be busy at a low load."""
    lines = [(color, label, use[key]) for color, label, key in _SHARES if key in use]
    if not lines:
        return ""
    detail = "share of the GPUs held: load is what was served of what full batches could, busy a step running"
    return _chart("GPU load and busy", detail, use[TIME], lines, wide=True)


def _link(use: Mapping[str, Any], kind: str) -> str:
    lines = [(1, "mean of all", use[kind + MEAN]), (2, "the one used most", use[kind + MOST])]
    return _chart(f"Links: {_LINKS.get(kind, kind)}", "share of what they could carry", use[TIME], lines)


def _host(use: Mapping[str, Any]) -> str:
    if HOST not in use:
        return ""
    x, (size,) = _thinned(use[TIME], [np.asarray(use[HOST]) / 1e9])
    time, unit_s = plots.time_axis(float(use[TIME][-1]))
    drawn = plots.Series("", x / unit_s, size, 3, "area")
    height = plots.linear_axis("", size, write=lambda value: f"{number(value)} GB")
    svg = plots.line_plot("Host memory with copies", [drawn], time, height)
    return figure("Host memory with copies", "parameters kept in the memory of all hosts", svg)


def _chart(
    caption: str, detail: str, ends_s: Any, lines: Sequence[tuple[int, str, Any]], wide: bool = False
) -> str:
    x, values = _thinned(ends_s, [100 * np.asarray(one) for _, _, one in lines])
    time, unit_s = plots.time_axis(float(ends_s[-1]))
    key = [(color, label) for color, label, _ in lines]
    drawn = [plots.Series(label, x / unit_s, one, color) for (color, label), one in zip(key, values)]
    height = plots.linear_axis("", *values, write=lambda value: f"{number(value)} %")
    svg = plots.line_plot(caption, drawn, time, height, width=plots.WIDE if wide else plots.HALF)
    return figure(caption, detail, svg, key, wide=wide)


def _thinned(ends_s: Any, columns: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return middles of periods, and values; if there are many, adjacent periods are averaged."""
    ends = np.asarray(ends_s, dtype=np.float64)
    begins = np.append(0.0, ends[:-1])
    lasts = ends - begins
    points = min(len(ends), _MOST_POINTS)
    first = np.unique(np.linspace(0, len(ends), points, endpoint=False).astype(np.int64))
    whole = np.add.reduceat(lasts, first)
    middles = begins[first] + whole / 2
    return middles, [np.add.reduceat(np.asarray(one) * lasts, first) / whole for one in columns]
