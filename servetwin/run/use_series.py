"""The use of GPUs, links and host memory over time, for a run with series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servetwin.assemble.gpu_load import work_gpu_s
from servetwin.assemble.hosted import hosted_models
from servetwin.results.instance_use import instance_use
from servetwin.results.series_sink import SeriesSink
from servetwin.results.use_over_time import Steps, link_shares, steps_of, use_over_time, work_of
from servetwin.run.prepared import Prepared
from serving.controller import Controller
from serving.elastic.elastic import Elastic

if TYPE_CHECKING:
    import numpy as np

    from simcore.data_plane.data_plane import DataPlane


def watched(
    sink: SeriesSink | None, controller: Controller, data_plane: DataPlane | None
) -> SeriesSink | None:
    """Return the sink. If there is one, also make links and host memory record their changes."""
    if sink is None:
        return None
    if isinstance(controller.elastic, Elastic):
        controller.elastic.deployment.checked_copies.usage.watch()
    if data_plane is not None:
        for link in range(len(data_plane.topology.links)):
            data_plane.fabric.watch(link)
    return sink


def use_series(
    prepared: Prepared,
    *,
    controller: Controller,
    data_plane: DataPlane | None,
    sink: SeriesSink | None,
    columns: Mapping[str, np.ndarray],
    summary: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return the columns of use_series.parquet; None without series, and for models in stages."""
    config, span_s = prepared.config, float(summary["duration_s"])
    if sink is None or config.system.in_stages:
        return None
    gpus, instances, host = _held_over_time(prepared, controller, summary)
    prompts, outputs = work_gpu_s(hosted_models(config), prepared.estimates, prepared.workload, columns)
    work = work_of(columns, prompts, outputs)
    links = None
    if data_plane is not None:
        links = link_shares(data_plane.fabric, data_plane.topology.links, sink.period_s, span_s)
    return use_over_time(
        sink, span_s=span_s, gpus=gpus, instances=instances, work=work, host_bytes=host, links=links
    )


def _held_over_time(
    prepared: Prepared, controller: Controller, summary: Mapping[str, Any]
) -> tuple[Steps, Steps, Steps]:
    """Return GPUs, instances, and bytes of copies in host memory, over time."""
    elastic, span_s = controller.elastic, float(summary["duration_s"])
    if not isinstance(elastic, Elastic):
        gpus = summary["gpu_seconds"] / span_s if span_s else 0.0
        return [(0.0, gpus)], [(0.0, float(summary["instances"]["max"]))], []
    gpus_of = {model: len(prototype.gpus) for model, prototype in elastic.prototypes.items()}
    steps = instance_use(prepared.replicas, gpus_of, elastic.deployment.log.events, span_s).steps
    changes = elastic.deployment.checked_copies.usage.changes or []
    return (
        [(at_s, float(gpus)) for at_s, gpus, _ in steps],
        [(at_s, float(sum(roles.values()))) for at_s, _, roles in steps],
        steps_of(changes),
    )
