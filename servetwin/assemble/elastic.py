"""Builds instances with roles, the hand-overs between them and elasticity from the configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, Final, NamedTuple

from hwmodels.topology.spec import ClusterSpec, Rate
from hwmodels.topology.topology import Topology, build
from policies.scaling.load_monitor import LoadMonitor, SurplusArbiter
from servetwin.assemble.data_plane import spec_of
from servetwin.assemble.hosted import HostedModel, hosted_models
from servetwin.assemble.sizes import Bounds, bounds_of
from servetwin.config.config import RunConfig
from servetwin.config.http_config import HTTP
from servetwin.config.policy.make import make_policy
from serving.elastic.setup import ElasticParts, ElasticPolicies, ElasticSetup, ModelLimits
from serving.elastic.signals import SignalRules
from serving.kv.handover import HandOverRules
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.live import LivePolicy
from serving.protocols.planning import Port
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates, ModelEstimates
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.units import NS_PER_S

# The speed constants that BlitzScale's authors ship, for ``estimates=artefact``.
# Source: reference table of the OSDI 2025 artefact, per instance: prompt tokens/s, KV tokens/s over RDMA,
# KV tokens of its memory. Where the table gives a range, its middle (Llama3-8B: 12000 to 15000 prompt
# tokens/s).


class ShippedRates(NamedTuple):
    """The shipped constants of one instance."""

    prefill_tokens_per_s: float
    kv_tokens_per_s: float
    kv_tokens: int


SHIPPED: Final = {
    "llama2_7b": ShippedRates(13_000, 24_000, 128_000),
    "llama3_8b": ShippedRates(13_500, 96_000, 480_000),
    "mistral_24b": ShippedRates(12_000, 160_000, 512_000),
    "qwen2_5_72b": ShippedRates(5_300, 160_000, 256_000),
}


def shipped_rates(shape: str) -> ShippedRates:
    """Return the constants of a model; UserError if the artefact has none."""
    if shape not in SHIPPED:
        raise UserError(
            f"estimates=artefact has no constants of {shape}, only of {', '.join(SHIPPED)}: write "
            "estimates=model"
        )
    return SHIPPED[shape]


NS_PER_MS = 1_000_000
SCRAPE_S: Final = 15.0  # kube-prometheus scrapes every 30 s, Prometheus' own examples every 15
WINDOW_S: Final = 60.0
# The rate of KV on links is that of such prompts: each also has its windows and states.
ESTIMATE_PROMPT_TOKENS = 1024
BYTES_PER_ACTIVATION = 2  # 16 bits, as the artefact of BlitzScale (OSDI 2025) sends them


def with_roles(
    hosted: Sequence[HostedModel],
    start: Mapping[Role, int],
    prototype: Callable[[HostedModel, Role], Replica],
) -> list[Replica]:
    """Return the replicas that serve from the start: GPUs in index order, prefill before decode."""
    placed, first = list[Replica](), 0
    for model in hosted:
        for role, count in start.items():
            tp, one = model.tp_of(role), prototype(model, role)
            for _ in range(count):
                first = -(-first // tp) * tp
                placed.append(replace(one, id=len(placed), gpus=tuple(range(first, first + tp)), role=role))
                first += tp
    return placed


def hand_over_rules(config: RunConfig) -> dict[str, HandOverRules]:
    """Return the hand-over rules of every model with separate prefill and decode instances."""
    if not config.system.instances.split:
        return {}
    most = config.engine.max_num_seqs
    return {model.name: HandOverRules(model.kv_bytes, most) for model in hosted_models(config)}


def elastic_of(config: RunConfig, prototypes: Mapping[str, Replica], estimates: Estimates) -> ElasticParts:
    """Return the parts of a controller's elasticity, with the configured policies. Raises UserError."""
    system, hosted = config.system, hosted_models(config)
    sizes_bytes = {prototypes[model.name].part: model.shape.weight_bytes for model in hosted}
    spec = spec_of(config)
    assert spec is not None, "an elastic system has links"
    cluster = cluster_map_of(build(spec))
    bounds = bounds_of(config, hosted)
    copies = make_policy("system/cache", system.cache, sizes_bytes=sizes_bytes, hosts=cluster.hosts)
    scaler = _scaler_of(config, estimates)
    period_ns, signals = _signals_of(config, scaler)
    estimated = {entry.model: entry for entry in estimates.models}
    setup = ElasticSetup(
        cluster=cluster,
        prototypes={model.name: _with_tp(prototypes[model.name], model.tp) for model in hosted},
        limits={
            model.name: _limits(config, model, bounds, estimated[model.name], cluster) for model in hosted
        },
        period_ns=period_ns,
        park_ns=round(system.instances.keep_parameters_ms * NS_PER_MS),
        signals=signals,
        grace_ns=None if system.instances.drain_s is None else round(system.instances.drain_s * NS_PER_S),
        keeps_lost_gpus=config.world == HTTP and config.http.starts,
    )
    provisioner = make_policy("system/provision", system.provision, estimates=estimates)
    live: LivePolicy | None = None
    if system.live.name != "none":
        live = make_policy("system/live", system.live, ttft_slo_ms=config.slo.ttft_ms)

    # Only the load monitor's rules define surplus instances.
    arbiter = SurplusArbiter(scaler.rules_of) if isinstance(scaler, LoadMonitor) else None
    return ElasticParts(setup, ElasticPolicies(scaler, provisioner, arbiter, live), copies)


def metrics_read(config: RunConfig, estimates: Estimates) -> tuple[str, ...]:
    """Return the gauges of instances that the scaler says it reads (``policies.scaling.metrics``)."""
    return tuple(getattr(_scaler_of(config, estimates), "metrics_read", ()))


def _scaler_of(config: RunConfig, estimates: Estimates) -> Any:
    slo = config.slo
    return make_policy(
        "system/scaler", config.system.scaler, estimates=estimates, ttft_slo_ms=slo.ttft_ms,
        tpot_slo_ms=slo.tpot_ms,
    )  # fmt: skip


def _signals_of(config: RunConfig, scaler: Any) -> tuple[int, SignalRules | None]:
    """Return the period of the load monitor, and when metrics are scraped for a scaler that reads them.

    Such a scaler is asked at every scrape and once per ``period_s`` of its own.
    """
    monitor_ns = round(config.system.instances.monitor_period_ms * NS_PER_MS)
    declared = config.system.signals
    if not getattr(scaler, "reads_signals", False):
        return monitor_ns, None
    own_ns = round(getattr(scaler, "period_s", monitor_ns / NS_PER_S) * NS_PER_S)
    scrape_s = declared.scrape_s or float(getattr(scaler, "scrape_s", SCRAPE_S))
    window_s = declared.window_s or float(getattr(scaler, "window_s", max(WINDOW_S, scrape_s)))
    scrape_ns, window_ns = round(scrape_s * NS_PER_S), round(window_s * NS_PER_S)
    if window_ns < scrape_ns:
        raise UserError(
            f"system.signals.window_s={window_s:g} is shorter than system.signals.scrape_s={scrape_s:g}: "
            "write at least as many seconds"
        )
    tick_ns = gcd(own_ns, scrape_ns)
    rules = SignalRules(
        scrape_ns=scrape_ns,
        window_ns=window_ns,
        delay_ns=round(declared.delay_s * NS_PER_S),
        tick_ns=tick_ns,
    )
    return tick_ns, rules


def cluster_map_of(topology: Topology) -> ClusterMap:
    """Return where GPUs and hosts connect to the network, with the rates that links reach."""
    spec = topology.spec
    rate = reached(spec, spec.nic, "nic")
    into = reached(spec, spec.pcie, "pcie") * (spec.gpus_per_nic or 1)  # GPUDirect traffic crosses PCIe too
    ports = tuple(
        Port(site.gpu, topology.scale_up_group(site.gpu).start, site.leaf, site.nic, min(rate, into) or 1)
        for site in topology.gpus
    )
    hosts = []
    for host in topology.hosts:
        nics = {ports[gpu].nic: ports[gpu] for gpu in topology.gpus_of(host)}
        hosts.append(tuple(replace(port, gpu=-1) for port in nics.values() if spec.nic is not None))
    scale_up = 0
    if len(topology.scale_up_group(0)) > 1:
        beside = reached(spec, spec.pcie_peer or spec.pcie, "pcie")
        scale_up = reached(spec, spec.nvlink, "nvlink") or beside
    stores = (("ssd",) if spec.ssd is not None else ()) + (("remote",) if spec.remote is not None else ())
    return ClusterMap(
        gpus_per_host=spec.gpus_per_host,
        ports=ports,
        host_ports=tuple(hosts),
        scale_up_bytes_per_s=scale_up,
        stores=stores,
    )


def reached(spec: ClusterSpec, rate: Rate | None, kind: str) -> int:
    """Return the rate that transfers reach on a link, in bytes/s; 0 if the cluster has no such link."""
    return 0 if rate is None else int(rate.bytes_per_s * spec.classes[kind].efficiency)


def _with_tp(prototype: Replica, tp: int) -> Replica:
    return replace(prototype, gpus=tuple(range(tp)))


def _limits(
    config: RunConfig, model: HostedModel, bounds: Bounds, estimated: ModelEstimates, cluster: ClusterMap
) -> ModelLimits:
    batch = config.engine.max_num_batched_tokens
    if config.estimates == "artefact":
        shipped = shipped_rates(model.shape_name)
        prefill_per_s, kv_tokens = shipped.prefill_tokens_per_s, shipped.kv_tokens
        kv_per_s = shipped.kv_tokens_per_s
    else:
        nics = {cluster.ports[gpu].nic: cluster.ports[gpu] for gpu in range(model.tp)}
        link = sum(port.bandwidth_bytes_per_s for port in nics.values())
        prefill_per_s, kv_tokens = estimated.prefill_tokens_per_s, estimated.kv_tokens
        kv_per_s = ESTIMATE_PROMPT_TOKENS * link / model.kv_bytes.of(ESTIMATE_PROMPT_TOKENS)
    return ModelLimits(
        bounds=bounds,
        prefill_tokens_per_s=prefill_per_s,
        kv_tokens=kv_tokens,
        kv_tokens_per_s=kv_per_s,
        pass_ns=round(batch / prefill_per_s * NS_PER_S),
        size_bytes=model.shape.weight_bytes,
        activation_bytes_per_token=model.shape.hidden * BYTES_PER_ACTIVATION,
        kv_bytes=model.kv_bytes,
        max_num_seqs=config.engine.max_num_seqs,
    )
