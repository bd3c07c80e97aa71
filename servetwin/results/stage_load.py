"""Load of every stage over time: replicas, queue, use, arrivals and their burstiness.

Computed after the run from finished passes (``stages.parquet``) and the replicas' events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from serving.controller import Controller
from serving.elastic.stage_control import KeyMark, StageControl
from serving.vocabulary.replica import Replica
from traces.columns import Names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

STAGE_LOAD_NAME: Final = "stage_series.parquet"
_NS_PER_S: Final = 1_000_000_000
_ROWS: Final = 200  # of each stage, about, if no period is set
COLUMNS: Final = ("replicas", "loading", "queue", "busy", "arrivals_per_s", "arrival_cv", "is_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changes in a stage's numbers of serving and of loading replicas at ``now_ns``.

    ``key``: 1: it becomes a key stage, -1: it stops being one.
    """

    now_ns: int
    model: str
    stage: int
    serving: int
    loading: int
    key: int = 0


def changes_of(controller: Controller, placed: Sequence[Replica]) -> list[Change]:
    """Return the changes: the start's replicas first, at 0; then replicas added and removed."""
    stage_of = {
        engine.replica.id: (engine.replica.model, service.index_of(engine.replica.id) or 0)
        for engine in controller.engines.values()
        if (service := _service(controller, engine.replica.model)) is not None
    }
    changes = []
    for replica in placed:
        model, stage = stage_of[replica.id]
        changes.append(Change(now_ns=0, model=model, stage=stage, serving=1, loading=0))
    control = controller.elastic
    if not isinstance(control, StageControl):
        return changes
    states = {start_replica.id: "serving" for start_replica in placed}
    for event in control.replicas.history:
        before = states.get(event.replica, "")
        after = {"load": "loading", "ready": "serving"}.get(event.act, "")
        if event.act not in ("load", "ready", "drain", "released", "lost"):
            continue
        states[event.replica] = after
        serving = (after == "serving") - (before == "serving")
        loading = (after == "loading") - (before == "loading")
        if serving or loading:
            model, stage = stage_of[event.replica]
            changes.append(
                Change(now_ns=event.now_ns, model=model, stage=stage, serving=serving, loading=loading)
            )
    return sorted([*changes, *_key_changes(control.marks)], key=lambda change: change.now_ns)


def _key_changes(marks: Sequence[KeyMark]) -> Iterator[Change]:
    """Yield when stages became key stages, and when they stopped being key stages."""
    before: dict[str, frozenset[int]] = {}
    for mark in marks:
        was = before.get(mark.model, frozenset())
        for stage in sorted(mark.stages ^ was):
            yield Change(
                now_ns=mark.now_ns,
                model=mark.model,
                stage=stage,
                serving=0,
                loading=0,
                key=1 if stage in mark.stages else -1,
            )
        before[mark.model] = mark.stages


def _service(controller: Controller, model: str) -> Any:
    return controller.services[model]


def default_period_s(span_s: float) -> float:
    """Return a round number of seconds that divides a run into some 200 parts; 0.01 at least."""
    wanted, period = max(span_s / _ROWS, 0.01), 0.01
    for factor in (2, 2.5, 2) * 8:
        if period >= wanted * (1 - 1e-9):
            break
        period *= factor
    return round(period, 2)


def stage_load(
    rows: Mapping[str, Any], changes: Sequence[Change], period_s: float, span_s: float
) -> dict[str, NDArray[np.generic] | Names]:
    """Return one row per instant, model and stage: 0, period, ... up to the first instant not before the end.

    ``replicas``, ``loading``, ``queue``: the numbers at the instant. ``busy``: the mean number of replicas
    with a pass in progress, over the period that ends at the instant. ``arrivals_per_s``, ``arrival_cv``: the
    rate and the CV of arrivals in this period (the CV is NaN with fewer than two gaps). ``is_key``: 1 while
    the stage is a key stage. Requests that a stage never finishes are not counted.
    """
    import numpy as np

    period_ns = round(period_s * _NS_PER_S)
    instants: Ints = np.arange(-(-round(span_s * _NS_PER_S) // period_ns) + 1, dtype=np.int64) * period_ns
    stages = sorted({(change.model, change.stage) for change in changes})
    models = tuple(sorted({model for model, _ in stages}))
    parts = [
        _of_stage(
            rows=rows, model=model, stage=stage, changes=changes, instants=instants, period_ns=period_ns
        )
        for model, stage in stages
    ]
    table: dict[str, Any] = {
        "time_s": np.repeat(instants / _NS_PER_S, len(stages)),
        "model": Names(
            np.tile(np.array([models.index(model) for model, _ in stages], dtype=np.int32), len(instants)),
            models,
        ),
        "stage": np.tile(np.array([stage for _, stage in stages], dtype=np.int64), len(instants)),
    }
    for name in COLUMNS:
        table[name] = np.stack([part[name] for part in parts], axis=1).ravel()
    return table


def _of_stage(
    *,
    rows: Mapping[str, Any],
    model: str,
    stage: int,
    changes: Sequence[Change],
    instants: Ints,
    period_ns: int,
) -> dict[str, Any]:
    """Return the columns of one stage."""
    import numpy as np

    stage_changes = [change for change in changes if (change.model, change.stage) == (model, stage)]
    times = np.array([change.now_ns for change in stage_changes], dtype=np.int64)
    at = np.searchsorted(times, instants, side="right")
    mine = rows["stage"] == stage
    if model in rows["model"].words:
        mine &= rows["model"].codes == rows["model"].words.index(model)
    arrived, began = np.sort(rows["arrived_ns"][mine]), np.sort(rows["began_ns"][mine])
    passes = np.unique(np.stack([rows[name][mine] for name in ("replica", "began_ns", "ended_ns")]), axis=1)
    served = _sum_since(np.sort(passes[1]), instants) - _sum_since(np.sort(passes[2]), instants)
    rate, cv = _arrivals(arrived, instants, period_ns)
    return {
        "replicas": np.concatenate([[0], np.cumsum([change.serving for change in stage_changes])])[at],
        "loading": np.concatenate([[0], np.cumsum([change.loading for change in stage_changes])])[at],
        "queue": np.searchsorted(arrived, instants, side="right")
        - np.searchsorted(began, instants, side="right"),
        "busy": np.diff(served, prepend=0) / period_ns,
        "arrivals_per_s": rate,
        "arrival_cv": cv,
        "is_key": np.concatenate([[0], np.cumsum([change.key for change in stage_changes])])[at],
    }


def _sum_since(moments: Ints, instants: Ints) -> Ints:
    """Return, at each instant, the sum of the times since all moments before it."""
    import numpy as np

    sums = np.concatenate([[0], np.cumsum(moments)])
    at = np.searchsorted(moments, instants, side="right")
    values: Ints = at * instants - sums[at]
    return values


def _arrivals(arrived: Ints, instants: Ints, period_ns: int) -> tuple[Floats, Floats]:
    """Return, for each period, its arrivals per second and the CV of the gaps before them."""
    import numpy as np

    last = np.searchsorted(arrived, instants, side="right")
    first = np.searchsorted(arrived, instants - period_ns, side="right")
    gaps = np.diff(arrived) / _NS_PER_S
    cv = np.full(len(instants), np.nan)
    for row, (low, high) in enumerate(zip(np.maximum(first, 1), last, strict=True)):
        period_gaps = gaps[low - 1 : high - 1] if high > low else gaps[:0]
        if len(period_gaps) > 1 and period_gaps.mean() > 0:
            cv[row] = period_gaps.std() / period_gaps.mean()
    return (last - first) / (period_ns / _NS_PER_S), cv
