"""From a configuration to the data plane of a run, and to the loads that replicas start with."""

from experiments.config import RunConfig
from hwmodels.catalogue import load_llm
from hwmodels.loading.startup import load_start_up
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from serving.actions import Load, Stop
from serving.errors import UserError
from serving.replica import Replica
from simcore.data_plane import DataPlane, DataPlaneSetup

# Start-ups with CUDA contexts and connections made beforehand for every GPU (BlitzScale, appendix A.1).
_POOLED = ("blitzscale",)


def topology_of(config: RunConfig) -> Topology | None:
    """The links of the run's cluster, None without. Raises UserError when replicas do not fit hosts."""
    name, tp = config.cluster.topology, config.model.tp
    if name is None:
        return None
    topology = build(load_cluster(name))
    per_host = topology.spec.gpus_per_host
    spans = tp % per_host == 0 and config.cluster.start == "warm"
    if per_host % tp and not spans:
        raise UserError(
            f"model.tp={tp} does not fit the {per_host} GPUs of a host of cluster={name}: write a model.tp "
            f"that divides {per_host}" + (", or a multiple of it" if config.cluster.start == "warm" else "")
        )
    return topology


def data_plane_of(config: RunConfig, replicas: list[Replica]) -> DataPlane | None:
    """The data plane, for replicas that have something to load. Raises UserError, HardwareError."""
    topology = topology_of(config)
    if topology is None or config.cluster.start == "warm":
        return None
    name, pooled = config.model.name, config.engine.start_up in _POOLED
    setup = DataPlaneSetup(
        topology,
        {replica.model: load_llm(name) for replica in replicas},
        [replica.model for replica in replicas],
        [replica.gpus for replica in replicas],
        config.engine.loader,
        load_start_up(config.engine.start_up),
        contexts=None if pooled else 0,
        connected=pooled,
    )
    return DataPlane(setup)


def starts_of(config: RunConfig, replicas: list[Replica]) -> list[Load]:
    """What every replica loads when the world opens: all of its parameters from ``cluster.start``."""
    start, topology = config.cluster.start, topology_of(config)
    if topology is None or start == "warm":
        return []
    loads = []
    for replica in replicas:
        host = topology.seat(replica.gpus[0]).host
        source: Stop = ("remote", 0) if start == "remote" else (start, host)
        stops: tuple[Stop, ...] = (source, ("replica", replica.id))
        loads.append(Load(replica.id, replica.model, stops, False, True, f"cold start from {start}"))
    return loads
