"""Use of GPUs, links and host memory over time: a row for each period of a run with series.

Computed after the run: from the begins and ends of steps (``series_sink``), from requests, from the rates of
links and from the bytes in host memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hwmodels.fabric.fabric import Fabric
    from hwmodels.topology.link import Link
    from servetwin.results.series_sink import SeriesSink

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
Steps = Sequence[tuple[float, float]]
"""(time in s, value from then on), ascending."""

USE_NAME: Final = "use_series.parquet"
TIME: Final = "time_s"
INSTANCES: Final = "instances"
GPUS: Final = "gpus"
LOAD: Final = "gpu_load_share"
BUSY: Final = "gpu_busy_share"
HOST: Final = "host_cache_bytes"
MEAN, MOST = "_mean_share", "_max_share"
_NS_PER_S: Final = 1e9
_SHORTEST_S: Final = 1e-9  # work of zero length counts at its instant


@dataclass(frozen=True, slots=True)
class GpuWork:
    """Full-batch GPU seconds of finished work, each amount spread evenly from its begin to its end."""

    begin_s: Floats
    end_s: Floats
    gpu_s: Floats


def work_of(columns: Columns, prompt_gpu_s: Floats, decode_gpu_s: Floats) -> GpuWork:
    """Return the work: prompts from first step to first token, outputs from first to last token."""
    scheduled, first, finish = (
        np.asarray(columns[name], dtype=np.float64) / _NS_PER_S
        for name in ("scheduled_ns", "first_token_ns", "finish_ns")
    )
    begin, end = np.concatenate([scheduled, first]), np.concatenate([first, finish])
    return GpuWork(begin, end, np.concatenate([prompt_gpu_s, decode_gpu_s]))


def edges_of(period_s: float, span_s: float) -> Floats:
    """Return 0, period, 2 * period, ... and the end of the run."""
    inner = np.arange(1, int(np.ceil(span_s / period_s - 1e-9))) * period_s
    return np.concatenate([[0.0], inner, [span_s]])


def spread(edges: Floats, begin: Floats, end: Floats, amounts: Floats) -> Floats:
    """Return how much of the amounts, spread evenly from begin to end, falls between adjacent edges."""
    end = np.maximum(end, begin + _SHORTEST_S)
    slope = amounts / (end - begin)
    integral = np.zeros(len(edges))
    for times, sign in ((begin, 1.0), (end, -1.0)):
        order = np.argsort(times, kind="stable")
        slopes = np.append(0.0, np.cumsum(slope[order]))
        starts = np.append(0.0, np.cumsum(slope[order] * times[order]))
        passed = np.searchsorted(times[order], edges, side="right")
        integral += sign * (slopes[passed] * edges - starts[passed])
    return np.maximum(np.diff(integral), 0.0)


def area(edges: Floats, steps: Steps) -> Floats:
    """Return the integral of a step function between adjacent edges."""
    times, values = np.array(steps, dtype=np.float64).reshape(-1, 2).T
    ends = np.append(times[1:], max(edges[-1], times[-1]))
    upto = np.append(0.0, np.cumsum(values * (ends - times)))
    at = np.searchsorted(times, edges, side="right") - 1
    integral = np.where(at < 0, 0.0, upto[at] + values[at] * (edges - times[at]))
    return np.diff(integral)


def use_over_time(
    sink: SeriesSink,
    *,
    span_s: float,
    gpus: Steps,
    instances: Steps,
    work: GpuWork | None = None,
    host_bytes: Steps = (),
    links: Mapping[str, Floats] | None = None,
) -> dict[str, NDArray[Any]] | None:
    """Return a row for each period, ``time_s`` its end; None for a run of no length.

    gpus, instances: how many were held. work: for ``gpu_load_share``. host_bytes: copies in host memory.
    ``gpu_busy_share`` is left out if replicas run several passes at once.
    """
    if span_s <= 0:
        return None
    edges = edges_of(sink.period_s, span_s)
    lasts, held_s, instance_s = np.diff(edges), area(edges, gpus), area(edges, instances)
    columns: dict[str, NDArray[Any]] = {TIME: edges[1:], INSTANCES: instance_s / lasts, GPUS: held_s / lasts}
    if work is not None:
        columns[LOAD] = _share(spread(edges, work.begin_s, work.end_s, work.gpu_s), held_s)
    if sink.one_pass:
        begin, end = sink.busy_s(span_s)
        columns[BUSY] = _share(spread(edges, begin, end, end - begin), instance_s)
    if any(value for _, value in host_bytes):
        columns[HOST] = area(edges, host_bytes) / lasts
    return columns | dict(links or {})


def link_shares(fabric: Fabric, links: Sequence[Link], period_s: float, span_s: float) -> dict[str, Floats]:
    """Return mean use and highest link's use, for every kind of link that carried data."""
    edges = edges_of(period_s, span_s)
    lasts, total, most = np.diff(edges), dict[str, Floats](), dict[str, Floats]()
    count: dict[str, int] = {}
    for number, link in enumerate(links):
        count[link.kind] = count.get(link.kind, 0) + 1
        series = fabric.series(number)
        if len(series) > 1 and link.rate_bytes_per_s:
            share = area(edges, series) / lasts / link.rate_bytes_per_s
            total[link.kind] = total.get(link.kind, 0.0) + share
            most[link.kind] = np.maximum(most.get(link.kind, 0.0), share)
    return {
        f"{kind}{end}": values
        for kind in total
        for end, values in ((MEAN, total[kind] / count[kind]), (MOST, most[kind]))
    }


def _share(part: Floats, whole: Floats) -> Floats:
    """Return part over whole; 0 if nothing was held."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def steps_of(changes: Iterable[tuple[int, float]]) -> Steps:
    """Convert (ns, value) to (s, value)."""
    return [(now_ns / _NS_PER_S, float(value)) for now_ns, value in changes]
