"""What scaling cost in a run: ``control`` of summary.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.sizes import bounds_of
from servetwin.run.prepared import Prepared
from serving.controller import Controller
from serving.elastic.elastic import Elastic

if TYPE_CHECKING:
    import numpy as np


def scaling_cost(
    prepared: Prepared, controller: Controller, columns: dict[str, np.ndarray], summary: dict[str, Any]
) -> dict[str, Any]:
    """Return what scaling cost; empty for a system that does not scale."""
    elastic, hosted = controller.elastic, hosted_models(prepared.config)
    if not isinstance(elastic, Elastic) or not len(columns["request"]):
        return {}
    from servetwin.assemble.gpu_load import work_gpu_s
    from servetwin.results.control_cost import control_section

    prompt, decode = work_gpu_s(hosted, prepared.estimates, prepared.workload, columns)
    bounds = bounds_of(prepared.config, hosted)
    gpus_of = {model.name: model.gpus for model in hosted}
    fewest = sum(least for least, _ in bounds.values()) * sum(gpus_of.values())
    return control_section(
        elastic.deployment.log.events,
        prepared.replicas,
        gpus_of=gpus_of,
        fewest_gpus=fewest,
        arrival_ns=columns["arrival_ns"],
        work_gpu_s=prompt + decode,
        span_s=summary["duration_s"],
        gpu_seconds=summary["gpu_seconds"],
    )
