"""Builds the data plane of a run, and the loads that replicas start with, from the configuration."""

from hwmodels.loading.startup import load_start_up
from hwmodels.topology.spec import ClusterSpec
from hwmodels.topology.topology import build
from servetwin.assemble.hosted import shapes_by_model
from servetwin.config.compose.clusters import spec_of_cluster
from servetwin.config.compose.starting import starting_of
from servetwin.config.config import RunConfig
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.setup import DataPlaneSetup


def spec_of(config: RunConfig) -> ClusterSpec | None:
    """Return the cluster with its links; None without. UserError if replicas do not fit its hosts."""
    name = config.cluster.topology
    if name is None:
        return None
    spec = spec_of_cluster(config.cluster)
    for tp in dict.fromkeys(config.model.tp_of_roles):
        _check_hosts(config, spec, tp)
    return spec


def _check_hosts(config: RunConfig, spec: ClusterSpec, tp: int) -> None:
    """Refuse instances of ``tp`` GPUs that fit no hosts."""
    name = config.cluster.topology
    per_host, warm = spec.gpus_per_host, config.cluster.start == "warm"
    spans = warm and tp % per_host == 0
    if not spec.holds_instances_of(tp) and not spans:
        sizes = f"that divides {per_host}" if spec.domain_gpus <= per_host else f"of {spec.instance_sizes}"
        raise UserError(
            f"model.tp={tp} does not fit the {per_host} GPUs of a host of cluster={name}: write a model.tp "
            f"{sizes}" + (", or a multiple of it" if warm else "")
        )
    if tp > per_host and config.cluster.start == "host":
        raise UserError(
            f"cluster.start=host has a copy in the memory of one host, and model.tp={tp} needs GPUs of "
            f"{tp // per_host} hosts of cluster={name}: write cluster.start=ssd, remote or warm"
        )


def has_data_plane(config: RunConfig) -> bool:
    """Return whether replicas load or hand over, or requests migrate, on a cluster with known links."""
    system = config.system
    moves = system.elastic or system.instances.split or system.migration.name != "none" or system.in_stages
    return (moves or config.cluster.start != "warm") and spec_of(config) is not None


def data_plane_of(config: RunConfig, replicas: list[Replica]) -> DataPlane | None:
    """Return the data plane, or None if nothing moves between replicas. Raises UserError, HardwareError."""
    spec = spec_of(config)
    if spec is None or not has_data_plane(config):
        return None
    start_up = load_start_up(config.engine.start_up)
    setup = DataPlaneSetup(
        topology=build(spec),
        shapes=shapes_by_model(config),
        model_of=[replica.model for replica in replicas],
        gpus_of=[replica.gpus for replica in replicas],
        loader="direct" if config.system.in_stages else config.engine.loader,
        start_up=start_up,
        layers_of={replica.id: (replica.layers.first, replica.layers.last) for replica in replicas},
        contexts=None if start_up.pooled else 0,
        connected=start_up.pooled,
        starting=starting_of(config),
    )
    return DataPlane(setup)


def starts_of(config: RunConfig, replicas: list[Replica]) -> list[Load]:
    """Return each replica's initial load: all of its parameters from ``cluster.start``."""
    start, spec = config.cluster.start, spec_of(config)
    if spec is None or start == "warm":
        return []
    loads = []
    for replica in replicas:
        host = replica.gpus[0] // spec.gpus_per_host
        source: Endpoint = ("remote", 0) if start == "remote" else (start, host)
        target: Endpoint = ("replica", replica.id)
        reason = f"cold start from {start}"
        loads.append(
            Load(
                load=replica.id,
                model=replica.model,
                sources=(source,),
                targets=(target,),
                shards=(),
                every_layer=False,
                cold=True,
                reason=reason,
                layers=replica.part.layers,
            )
        )
    return loads
