"""Builds the policies that start and stop replicas of stages, and their inputs."""

from collections.abc import Callable, Mapping

from hwmodels.topology.topology import build
from policies.quart.recut import BurstsByCv, Recutting, SlowestStage
from servetwin.assemble.elastic import cluster_map_of
from servetwin.config.compose.clusters import spec_of_cluster
from servetwin.config.config import RunConfig
from servetwin.config.policy.make import make_policy, policy_maker
from serving.elastic.stage_peers import PeerSetup
from serving.elastic.stage_setup import StageHosts, StageScaling
from serving.protocols.stages import StageScaler
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S

_ANY = 1 << 30  # cores, if the host's number is unknown


def stage_scaling(
    config: RunConfig,
    estimates: Estimates,
    exec_s: Mapping[Part, float],
    sizes: Mapping[Part, int],
    full_per_s: float | None = None,
) -> StageScaling:
    """Return the policies that start and stop replicas of stages, with their inputs. Raises UserError.

    ``full_per_s``: the requests per second that ``trace.utilization`` is a share of; None: not known.
    """
    assert config.cluster.topology is not None, "models in stages need links"
    pipeline, spec = config.pipeline, spec_of_cluster(config.cluster)
    most = spec.gpus if pipeline.max_replicas is None else pipeline.max_replicas
    cores = _ANY if spec.cpu_cores is None else spec.cpu_cores
    return StageScaling(
        scaler=_scaler(config, estimates, mean_rate_per_s(config, full_per_s)),
        hosts=StageHosts(spec.hosts, spec.gpus_per_host, spec.host_memory_bytes, cores),
        period_ns=round(pipeline.period_s * NS_PER_S),
        window_ns=round(pipeline.window_s * NS_PER_S),
        slo_s=config.slo.ttft_ms / 1e3,
        minimum=pipeline.min_replicas,
        maximum=most,
        max_replicas=most,
        cores=pipeline.cpu_cores,
        exec_s=exec_s,
        sizes_bytes=sizes,
        peers=_peers(config, estimates),
        batch_cost=pipeline.batch_cost,
        copies_share=_copies_share(config),
    )


def _copies_share(config: RunConfig) -> float:
    """Return the share of a host's memory that copies may take; 1 if the scaler sets no such bound."""
    share = config.system.stages.params.get("most_used")
    return float(share) if isinstance(share, int | float) and 0 < share <= 1 else 1.0


def mean_rate_per_s(config: RunConfig, full_per_s: float | None = None) -> float:
    """Return the run's requests per second from its configuration; 0: the configuration does not say.

    It does not for a recorded trace, a window of one, several models or bursts on top of a base rate.
    """
    trace = config.trace
    if config.models.name != "one" or trace.window_s is not None:
        return 0.0
    if trace.utilization is None:
        rate = trace.params.get("rate_per_s") or 0.0
    else:
        rate = trace.utilization * (full_per_s or 0.0)
    return float(rate * (trace.rate_scale or 1.0) * trace.time_compression)


def _scaler(config: RunConfig, estimates: Estimates, mean_per_s: float) -> StageScaler:
    """Return the scaler, inside the policy that recuts the model if there is one."""
    pipeline = config.pipeline
    make: Callable[[], StageScaler] = policy_maker(
        "system/stages", config.system.stages, estimates=estimates, mean_rate_per_s=mean_per_s
    )
    if pipeline.recut == "none":
        return make()
    return Recutting(
        make, SlowestStage() if pipeline.recut == "time" else BurstsByCv(*pipeline.few_and_many())
    )


def _peers(config: RunConfig, estimates: Estimates) -> PeerSetup | None:
    """Return the planner of loads from replicas that have a stage."""
    if config.system.provision.name == "none":
        return None
    assert config.cluster.topology is not None
    provisioner = make_policy("system/provision", config.system.provision, estimates=estimates)
    return PeerSetup(provisioner, cluster_map_of(build(spec_of_cluster(config.cluster))))
