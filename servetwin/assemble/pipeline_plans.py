"""Plans of replicas in stages for the simulated world: times of stages and of activations."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hwmodels.catalogue import load_gpu
from hwmodels.models.stage_cuts import Cut
from hwmodels.step_times.stage_rows import StageHop, StageRows, activation_bytes, head_share
from hwmodels.topology.link import gpu
from hwmodels.topology.topology import Topology, build
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import run_shape
from servetwin.assemble.stage_cut import required_cut
from servetwin.config.compose.clusters import spec_of_cluster
from servetwin.config.config import RunConfig
from serving.vocabulary.replica import Replica
from simcore.pipeline.pipelines import PipelinePlan

NO_LINKS = "activations between stages take no time: cluster={} has no links"


def pipeline_plans(
    config: RunConfig, replicas: Sequence[Replica], hardware: Mapping[str, Hardware]
) -> list[PipelinePlan]:
    """Return one plan for each replica; none if replicas are whole."""
    if config.model.pp == 1:
        return []
    topology = None if config.cluster.topology is None else build(spec_of_cluster(config.cluster))
    plans = list[PipelinePlan]()
    rows_of: dict[tuple[StageHop, ...], StageRows] = {}
    for replica in replicas:
        hops = hops_of(config, replica.gpus, topology)
        if hops not in rows_of:
            rows_of[hops] = stage_rows(config, hardware[replica.model], hops)
        plans.append(PipelinePlan(replica.id, rows_of[hops], replica.kv_pools > 1))
    return plans


def stage_rows(
    config: RunConfig, hardware: Hardware, hops: Sequence[StageHop] | None = None, cut: Cut | None = None
) -> StageRows:
    """Return the stage times of a replica in stages; without ``hops`` activations take no time.

    ``cut``: None means the run's own.
    """
    shape = run_shape(config)
    cut = required_cut(config) if cut is None else cut
    between = [StageHop(0.0, 0.0)] * (len(cut) - 1) if hops is None else hops
    return StageRows(hardware.rows, cut, head_share(load_gpu(config.cluster.gpu), shape), between)


def hops_of(config: RunConfig, gpus: Sequence[int], topology: Topology | None) -> tuple[StageHop, ...]:
    """Return the hops from every stage to the next, rank to same rank, each with its part of the activations.

    Ranks whose paths share a link share its rate. vLLM sends parts and gathers them in the next stage
    (0.19, isend_tensor_dict with all_gather_group); the gathering is not counted.
    """
    tp = config.model.tp
    pp = len(gpus) // tp
    if topology is None:
        return (StageHop(0.0, 0.0),) * (pp - 1)
    part_bytes = activation_bytes(run_shape(config)) / tp
    hops = list[StageHop]()
    for stage in range(pp - 1):
        first = gpus[stage * tp : stage * tp + tp]
        following = gpus[stage * tp + tp : stage * tp + 2 * tp]
        paths = [
            topology.path(gpu(source), gpu(target)) for source, target in zip(first, following, strict=True)
        ]
        users = Counter([link for path in paths for link in path])
        latency_s = max(sum([topology.link_latency_s[link] for link in path]) for path in paths)
        token_s = max(
            part_bytes * users[link] / topology.links[link].rate_bytes_per_s
            for path in paths
            for link in path
        )
        hops.append(StageHop(latency_s, token_s))
    return tuple(hops)
