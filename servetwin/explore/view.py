"""What the page shows of a finished run: a sentence, numbers with their ranges, and plots of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from hwmodels.yaml_text import yaml_data
from servetwin.report.figures import distributions, figure, over_time, waiting
from servetwin.report.number_text import NOTHING, count, duration, number, section, share
from servetwin.report.page_parts import charts
from servetwin.report.range_text import fact_range, near_saturation, range_text
from servetwin.report.scaling import instances_plot
from servetwin.results.series import requests_in

_SECONDS_OF_AN_HOUR: Final = 3600.0


def view(folder: Path, price: float | None) -> dict[str, Any]:
    """Return ``sentence``, ``numbers`` (a row of the table of states) and ``html`` of a result folder.

    ``price``: of a GPU-hour, None for no cost.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config = yaml_data((folder / "config.yaml").read_text(encoding="utf-8"))
    assert isinstance(config, dict)
    shown = numbers(summary, price)
    tiles = "".join(
        f'<div class="tile"><p>{escape(name)}</p><strong>{escape(value)}</strong>'
        f"<small>{escape(between)}</small></div>"
        for name, value, between in shown
    )
    plotted = _plots(folder, config, summary)
    return {
        "sentence": sentence(summary),
        "warning": near_saturation(summary),
        "numbers": {name: value for name, value, _ in shown},
        "html": f'<section class="tiles">{tiles}</section>{plotted}',
    }


def numbers(summary: Mapping[str, Any], price: float | None) -> list[tuple[str, str, str]]:
    """Return (name, value, range) of each number; the range is empty where there is none."""
    ttft, tpot = section(summary, "ttft_ms"), section(summary, "tpot_ms")
    attained = section(summary, "slo").get("attainment")
    return [
        ("TTFT P99", duration(ttft.get("p99")), _between(range_text(summary, "ttft_ms.p99", duration))),
        ("TTFT mean", duration(ttft.get("mean")), _between(range_text(summary, "ttft_ms.mean", duration))),
        ("TPOT P99", duration(tpot.get("p99")), _between(range_text(summary, "tpot_ms.p99", duration))),
        ("Within objectives", share(attained), _between(fact_range(summary, "SLO attainment"))),
        ("GPUs held, mean", number(mean_gpus(summary)), ""),
        cost(summary, price),
    ]


def _between(text: str) -> str:
    return f"range {text}" if text else ""


def mean_gpus(summary: Mapping[str, Any]) -> float | None:
    """Return the GPUs held on average; None for a run of no time."""
    span_s = float(summary.get("duration_s") or 0.0)
    return float(summary.get("gpu_seconds") or 0.0) / span_s if span_s else None


def cost(summary: Mapping[str, Any], price: float | None) -> tuple[str, str, str]:
    """Return the cost of a thousand requests within the objectives, and of an hour below it.

    Per token, an overloaded cluster would look cheap.
    """
    name = "Cost of 1,000 within"
    gpus, good_per_s = mean_gpus(summary), section(summary, "slo").get("goodput_req_per_s")
    if price is None or gpus is None:
        return name, NOTHING, "" if price is not None else "write a price of a GPU-hour"
    hourly = gpus * price
    each = number(1e3 * hourly / (good_per_s * _SECONDS_OF_AN_HOUR)) if good_per_s else NOTHING
    return name, each, f"{number(hourly)} per hour"


def sentence(summary: Mapping[str, Any]) -> str:
    """Say how many requests had an answer within the objectives."""
    requests, slo = section(summary, "requests"), section(summary, "slo")
    finished, arrived = requests.get("finished"), requests.get("arrived")
    told = f"{count(finished)} of {count(arrived)} requests finished"
    limits = f"TTFT {duration(slo.get('ttft_ms'))} and TPOT {duration(slo.get('tpot_ms'))}"
    return f"{told}; {share(slo.get('attainment'))} within {limits}."


def _plots(folder: Path, config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    requests = requests_in(folder)
    if not len(requests):
        return figure("Latency", "No request finished: there is nothing to plot.", "")
    slo = section(config, "slo")
    drawn = [
        distributions(requests, slo.get("ttft_ms"), slo.get("tpot_ms")),
        over_time("TTFT by arrival time", requests, requests.ttft_ms, slo.get("ttft_ms"), 1),
        waiting(requests),
    ]
    events = summary.get("scale_events")
    drawn += [instances_plot(events, summary)] if events else []
    return charts("", drawn)
