"""Work of a pipeline's stages: arrivals and their burstiness, queues, waits, use of their replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.stages import parts_of, stack_of
from servetwin.config.config import RunConfig
from serving.controller import Controller
from serving.services.pipeline.service import Pipeline
from serving.services.pipeline.stage_log import FIELDS
from traces.columns import Names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NS_PER_S = 1e9
NS_PER_MS = 1e6


def pipelines_in(controller: Controller) -> list[Pipeline]:
    """Return the services of models in stages, by model."""
    return [service for _, service in sorted(controller.services.items()) if isinstance(service, Pipeline)]


def stage_rows(controller: Controller) -> dict[str, np.ndarray | Names] | None:
    """Return a row per request and stage in the order in which passes ended; None without stages."""
    import numpy as np

    pipelines = pipelines_in(controller)
    if not pipelines:
        return None
    tables = [
        np.frombuffer(pipeline.log.rows, dtype=np.int64).reshape(-1, len(FIELDS)) for pipeline in pipelines
    ]
    codes = np.concatenate([np.full(len(table), code) for code, table in enumerate(tables)])
    rows = np.concatenate(tables)
    order = np.argsort(rows[:, FIELDS.index("ended_ns")], kind="stable")
    columns: dict[str, np.ndarray | Names] = {
        name: np.ascontiguousarray(rows[order, at]) for at, name in enumerate(FIELDS)
    }
    return {
        "model": Names(codes[order].astype(np.int32), tuple(pipeline.model for pipeline in pipelines)),
        **columns,
    }


def stages_section(
    config: RunConfig,
    controller: Controller,
    rows: Mapping[str, np.ndarray | Names] | None,
    span_s: float,
) -> dict[str, Any]:
    """Return ``stages``: one entry per stage, in order of models and stages; empty without stages."""
    if rows is None:
        return {}
    table = []
    for model in hosted_models(config):
        service = controller.services[model.name]
        assert isinstance(service, Pipeline)
        of_model = _of_model(rows, model.name)
        for index, part in enumerate(parts_of(config, model)):
            stage = service.stages[index]
            table.append(
                {
                    "model": model.name,
                    "stage": index,
                    "layers": list(part.layers),
                    "bytes": stack_of(model).bytes_of(*part.layers),
                    "exec_ms": stack_of(model).seconds_of(*part.layers) * 1e3,
                    "replicas": stage.fleet.replicas,
                    **_numbers({key: of_model[key][of_model["stage"] == index] for key in of_model}, span_s),
                }
            )
    return {"stages": table}


def _of_model(rows: Mapping[str, Any], model: str) -> dict[str, Ints]:
    wanted = rows["model"].codes == rows["model"].words.index(model)
    return {key: rows[key][wanted] for key in FIELDS}


def _numbers(own: Mapping[str, Ints], span_s: float) -> dict[str, float | int | None]:
    """``queue_mean`` over the whole run, by Little's law; ``utilization``: passes of its replicas over time.

    A wait ends when a replica takes the request; a pass includes its input's transfer and the GPU wait.
    """
    import numpy as np

    arrived = np.sort(own["arrived_ns"])
    gaps = np.diff(arrived)
    waits = own["began_ns"] - own["arrived_ns"]
    passes = np.unique(np.stack([own["replica"], own["began_ns"], own["ended_ns"]]), axis=1)
    took = passes[2] - passes[1]
    mean_gap = float(gaps.mean()) if len(gaps) else 0.0
    return {
        "requests": len(arrived),
        "arrivals_per_s": NS_PER_S / mean_gap if mean_gap else None,
        "arrival_cv": float(gaps.std()) / mean_gap if mean_gap else None,
        "queue_mean": float(waits.sum()) / NS_PER_S / span_s if span_s else 0.0,
        "queue_max": _largest_queue(own),
        "wait_ms_mean": float(waits.mean()) / NS_PER_MS if len(waits) else None,
        "wait_ms_p99": float(np.quantile(waits, 0.99)) / NS_PER_MS if len(waits) else None,
        "pass_ms_mean": float(took.mean()) / NS_PER_MS if len(took) else None,
        "pass_cv": float(took.std() / took.mean()) if len(took) else None,
        "busy_replicas": float(took.sum()) / NS_PER_S / span_s if span_s else 0.0,
    }


def _largest_queue(own: Mapping[str, Ints]) -> int:
    """Return the most requests that waited at once; at one instant, leaves count before arrivals."""
    import numpy as np

    times = np.concatenate([own["began_ns"], own["arrived_ns"]])
    change = np.repeat([-1, 1], len(own["began_ns"]))
    waited = own["began_ns"] > own["arrived_ns"]
    keep = np.concatenate([waited, waited])
    order = np.argsort(times[keep], kind="stable")
    return int(np.cumsum(change[keep][order]).max(initial=0))
