"""The section of summary.json about replicas in pipeline stages."""

from typing import Any

from servetwin.assemble.pipeline_plans import NO_LINKS
from servetwin.assemble.stage_cut import required_cut
from servetwin.config.config import RunConfig
from servetwin.config.pipeline_parallel import stand_in, virtual_engines
from simcore.pipeline.pipelines import Pipelines


def pipelines_section(config: RunConfig, pipelines: Pipelines) -> dict[str, Any]:
    """Return the section; empty if no replica is cut into stages. ``steps`` counts steps of micro-batches.

    ``bubble_share``: the share in which a stage does not compute, of the stages' time while their replica has
    a micro-batch in flight.
    """
    replicas = pipelines.of.values()
    if not replicas:
        return {}
    stages = config.model.pp
    used = sum([stages * replica.used_fixed for replica in replicas])
    work = sum([replica.shop.computed() for replica in replicas])
    section: dict[str, Any] = {
        "stages": stages,
        "layers": [len(part) for part in required_cut(config)],
        "steps": sum([replica.steps for replica in replicas]),
        "bubble_share": 1.0 - work / used if used else None,
    }
    if (pools := virtual_engines(config)) > 1:
        section["virtual_engines"] = pools
    labels = stand_in(config)
    if config.cluster.topology is None:
        labels.append(NO_LINKS.format(config.cluster.name))
    if labels:
        section["labels"] = labels
    return {"pipeline_parallel": section}
