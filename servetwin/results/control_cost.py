"""What scaling costs: decisions taken back, GPUs too many or too few, and GPU-hours over a lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WINDOW_S: Final = 300.0
"""A start within this time of a stop is a reversal, and a stop of a start: HPA's stabilisation window."""
CONSTANT_S: Final = 600.0
PERIOD_S: Final = 5.0
METHOD: Final = (
    "the work of the finished requests in full batches, or the fewest instances for the whole run, whichever "
    "is more"
)
_UP: Final = ("load", "revive", "cancel_drain")
_SERVES: Final = ("ready", "revive", "cancel_drain")
_ENDS: Final = ("drain", "terminating", "lost")
# Arrivals of a constant rate that come independently have a variance of their mean; twice that is still taken
# for constant. Counted in spans of this many seconds.
_MOST_DISPERSION: Final = 2.0
_SPAN_S: Final = 60.0


def control_section(
    events: Sequence[ScaleEvent],
    placed: Sequence[Replica],
    *,
    gpus_of: Mapping[str, int],
    fewest_gpus: int,
    arrival_ns: NDArray[np.int64],
    work_gpu_s: Floats,
    span_s: float,
    gpu_seconds: float,
) -> dict[str, Any]:
    """Return ``control`` of summary.json.

    ``gpus_of``: GPUs of an instance of each model. ``fewest_gpus``: those of the fewest instances allowed.
    ``arrival_ns``, ``work_gpu_s``: of each finished request, when it came and its GPU seconds in full
    batches.
    """
    reversed_s = reversals_s(events)
    serving, wanted = _serving(events, placed, gpus_of, span_s), _wanted(arrival_ns, work_gpu_s, span_s)
    lacking, least = wanted > serving, min(gpus_of.values())
    episodes = [sum(1 for _ in run) * PERIOD_S for lacks, run in groupby(lacking.tolist()) if lacks]
    bound_s = max(float(work_gpu_s.sum()), fewest_gpus * span_s)
    return {
        "control": {
            "starts": sum(event.act in _UP for event in events),
            "stops": sum(event.act == "drain" for event in events),
            "reversals": len(reversed_s),
            "reversal_window_s": WINDOW_S,
            "constant_load_reversals": _while_constant(reversed_s, arrival_ns, span_s),
            "under_provisioned_s": min(span_s, float(lacking.sum()) * PERIOD_S),
            "over_provisioned_s": min(
                span_s, float(((serving - least >= wanted) & (serving > fewest_gpus)).sum()) * PERIOD_S
            ),
            "overload_to_capacity_s": {
                "count": len(episodes),
                "mean": sum(episodes) / len(episodes) if episodes else None,
                "max": max(episodes, default=None),
            },
            "gpu_seconds_bound": bound_s,
            "over_bound": gpu_seconds / bound_s if bound_s else None,
            "bound": METHOD,
        }
    }


def reversals_s(events: Sequence[ScaleEvent]) -> list[float]:
    """When a role's number of instances turned back within WINDOW_S of its last change, in order."""
    last: dict[tuple[str, str], tuple[bool, int]] = {}
    turned = []
    for event in events:
        if event.act not in (*_UP, "drain"):
            continue
        key, up = (event.model, event.role), event.act != "drain"
        before = last.get(key)
        if before is not None and before[0] != up and event.now_ns - before[1] <= WINDOW_S * NS_PER_S:
            turned.append(event.now_ns / NS_PER_S)
        last[key] = up, event.now_ns
    return turned


def _periods(span_s: float) -> int:
    return max(1, -(-int(span_s * NS_PER_S) // int(PERIOD_S * NS_PER_S)))


def _wanted(arrival_ns: NDArray[np.int64], work_gpu_s: Floats, span_s: float) -> Floats:
    """Return, for each period, the GPUs that the work arriving in it keeps busy in full batches."""
    import numpy as np

    period = np.minimum(arrival_ns // int(PERIOD_S * NS_PER_S), _periods(span_s) - 1)
    return np.bincount(period, weights=work_gpu_s, minlength=_periods(span_s)) / PERIOD_S


def serving_changes(events: Sequence[ScaleEvent], placed: Sequence[Replica]) -> list[tuple[float, str, int]]:
    """Return (time in s, model, 1 or -1) whenever an instance begins or ends to take requests, in order.

    ``placed``: those that took requests from the start, which are no change.
    """
    changes, there = list[tuple[float, str, int]](), {replica.id for replica in placed}
    for event in events:
        at_s = event.now_ns / NS_PER_S
        if event.act in _SERVES and event.replica not in there:
            there.add(event.replica)
            changes.append((at_s, event.model, 1))
        elif event.act in _ENDS and event.replica in there:
            there.discard(event.replica)
            changes.append((at_s, event.model, -1))
    return changes


def _serving(
    events: Sequence[ScaleEvent], placed: Sequence[Replica], gpus_of: Mapping[str, int], span_s: float
) -> Floats:
    """Return, for each period, the GPUs of instances that take requests, in the mean."""
    import numpy as np

    edges = np.arange(_periods(span_s) + 1) * PERIOD_S
    area = edges * sum(len(replica.gpus) for replica in placed)
    for at_s, model, change in serving_changes(events, placed):
        area += change * gpus_of.get(model, 0) * np.maximum(0.0, edges - at_s)
    served: Floats = np.diff(area) / PERIOD_S
    return served


def _while_constant(reversed_s: Sequence[float], arrival_ns: NDArray[np.int64], span_s: float) -> int | None:
    """Return the most reversals in CONSTANT_S of constant load; None if the load is never that constant."""
    import numpy as np

    spans = int(span_s // _SPAN_S)
    counts = np.bincount(arrival_ns // int(_SPAN_S * NS_PER_S), minlength=spans)[:spans].astype(np.float64)
    width = min(spans, int(CONSTANT_S // _SPAN_S))
    most = None
    for first in range(spans - width + 1 if width >= 2 else 0):
        own = counts[first : first + width]
        if own.mean() > 0 and own.var(ddof=1) / own.mean() <= _MOST_DISPERSION:
            begin_s, end_s = first * _SPAN_S, (first + width) * _SPAN_S
            most = max(most or 0, sum(begin_s <= at_s < end_s for at_s in reversed_s))
    return most
