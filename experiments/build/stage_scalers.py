"""From a configuration to who starts and stops replicas of stages, and what it is told."""

from collections.abc import Callable, Mapping

from experiments.build.elastic import cluster_map_of
from experiments.compose.clusters import spec_of_cluster
from experiments.config.config import RunConfig
from experiments.policy.make import make_policy, policy_maker
from hwmodels.topology.topology import build
from policies.quart.recut import BurstsByCv, Recutting, SlowestStage
from serving.elastic.stage_peers import PeerSetup
from serving.elastic.stage_setup import StageHosts, StageScaling
from serving.protocols.stages import StageScaler
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S

_ANY = 1 << 30  # cores, where nobody says how many a host has


def stage_scaling(
    config: RunConfig, estimates: Estimates, exec_s: Mapping[Part, float], sizes: Mapping[Part, int]
) -> StageScaling:
    """Who starts and stops replicas of stages, and what it is told. Raises UserError."""
    assert config.cluster.topology is not None, "models in stages need links"
    one, spec = config.pipeline, spec_of_cluster(config.cluster)
    most = spec.gpus if one.max_replicas is None else one.max_replicas
    cores = _ANY if spec.cpu_cores is None else spec.cpu_cores
    return StageScaling(
        _scaler(config, estimates),
        StageHosts(spec.hosts, spec.gpus_per_host, spec.host_memory_bytes, cores),
        round(one.period_s * NS_PER_S),
        round(one.window_s * NS_PER_S),
        config.slo.ttft_ms / 1e3,
        one.min_replicas,
        most,
        most,
        one.cpu_cores,
        exec_s,
        sizes,
        _peers(config, estimates),
        one.batch_cost,
    )


def _scaler(config: RunConfig, estimates: Estimates) -> StageScaler:
    """Who decides, and around it who cuts the model anew."""
    one = config.pipeline
    make: Callable[[], StageScaler] = policy_maker("system/stages", config.system.stages, estimates=estimates)
    if one.recut == "none":
        return make()
    return Recutting(make, SlowestStage() if one.recut == "time" else BurstsByCv(*one.few_and_many()))


def _peers(config: RunConfig, estimates: Estimates) -> PeerSetup | None:
    """Who plans loads from replicas that have a stage."""
    if config.system.provision.name == "none":
        return None
    assert config.cluster.topology is not None
    provisioner = make_policy("system/provision", config.system.provision, estimates=estimates)
    return PeerSetup(provisioner, cluster_map_of(build(spec_of_cluster(config.cluster))))
