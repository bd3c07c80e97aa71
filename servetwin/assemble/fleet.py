"""What a run needs of its real workers: which slots hold parameters, memory sizes, link rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from servetwin.assemble.data_plane import has_data_plane, spec_of
from servetwin.assemble.elastic import reached
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import hosted_models
from servetwin.config.config import RunConfig
from servetwin.config.workers_config import CUDA, transports_asked
from serving.controller import Controller
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica

if TYPE_CHECKING:
    from realexec.driver.driver import WorkerFleet
    from realexec.launchers.base import Launcher

# KV whose blocks were promised to other requests is freed a moment later, and a free gap must be contiguous.
KV_SHARE = 2
LEAST_KV_BYTES = 32 << 20
# A worker's memory is allocated and holds its parameters before a run begins. On a virtual machine that had
# not touched the pages before, one worker reached 250 MB/s.
START_S = 120.0
# The rates of cluster=local suit models of some MB: a longer load than this is probably a mistake.
SLOW_LOAD_S = 30.0
START_BYTES_PER_S = 100e6


def fleet_of(
    config: RunConfig, controller: Controller, hardware: Hardware, replicas: Sequence[Replica]
) -> WorkerFleet:
    """Describe the workers. If nothing moves and there is one model, only their number is needed."""
    from realexec.driver.driver import WorkerFleet

    moves = has_data_plane(config)
    rounds = bool(getattr(controller.elastic, "has_rounds", False))
    hosted = hosted_models(config)
    if not moves and len(hosted) == 1:
        return WorkerFleet(
            opens=rounds, every_step=controller.step_counts.read, transport=transport_of(config)
        )
    kv_tokens = hardware.kv_blocks * config.engine.block_tokens
    kv_bytes = state_bytes(kv_tokens, max(model.shape.kv_bytes_per_token for model in hosted))
    return WorkerFleet(
        replicas=tuple([replica.gpus[0] for replica in replicas]),
        opens=moves or rounds,
        every_step=controller.step_counts.read,
        hosts_cache=config.system.elastic or config.system.scales_stages,
        kv_bytes=kv_bytes,
        rates=rates_of(config),
        transport=transport_of(config),
        parts={replica.id: replica.part for replica in replicas},
        stages=config.system.in_stages,
    )


def start_timeout_s(config: RunConfig, fleet: WorkerFleet) -> float:
    """Return how long all workers may take to allocate their memory and load their first parameters."""
    parameters = sum(model.shape.weight_bytes for model in hosted_models(config))
    each = parameters * (2 if fleet.hosts_cache else 1) + fleet.kv_bytes
    assert config.workers is not None
    return START_S + config.workers * each / START_BYTES_PER_S


def launcher_of(config: RunConfig) -> Launcher:
    """Return the launcher that starts the workers' processes."""
    if config.launcher == "ray":
        from realexec.launchers.ray_cluster import AUTO, RayLauncher

        return RayLauncher(config.ray.address or AUTO, config.device.startswith(CUDA))
    from realexec.launchers.local import LocalLauncher

    return LocalLauncher()


def transport_of(config: RunConfig) -> str:
    """Return how workers read each other's memory: the configured transport, or the first available one."""
    from realexec.transport_registry import ONE_HOST, lack_between, lack_of

    names: Sequence[str] = transports_asked(config.transport, config.device)
    local = config.launcher == "local"
    if not local:
        names = [name for name in names if name not in ONE_HOST]
    lacks = {}
    for name in names:
        lacks[name] = lack_between(name, config.device) if local else lack_of(name)
        if lacks[name] is None:
            return name
    causes = "; ".join(f"{name}: {lack}" for name, lack in lacks.items())
    raise UserError(
        f"workers cannot read each other's memory here ({causes}): write transport=NAME of another"
    )


def state_bytes(kv_tokens: int, bytes_per_token: int) -> int:
    """Return the bytes that a worker keeps for KV and hidden states."""
    return LEAST_KV_BYTES + KV_SHARE * kv_tokens * bytes_per_token


def rates_of(config: RunConfig) -> dict[str, float]:
    """Return the rate limit in bytes/s of each kind of link of real workers; empty if nothing moves."""
    spec = spec_of(config)
    if spec is None or not has_data_plane(config):
        return {}
    rates = {"nic": spec.nic, "ssd": spec.ssd, "pcie": spec.pcie, "remote": spec.remote}
    return {kind: float(reached(spec, rate, kind)) for kind, rate in rates.items() if rate is not None}


def slow_links(config: RunConfig) -> str | None:
    """Return a warning for the user if a load takes over ``SLOW_LOAD_S`` at the links' rate limit."""
    rate = rates_of(config).get("nic")
    largest = max(hosted_models(config), key=lambda model: model.shape.weight_bytes)
    load_bytes = largest.shape.weight_bytes
    if rate is None or load_bytes < rate * SLOW_LOAD_S:
        return None
    kv_s = largest.kv_bytes.of(1000) / rate
    return (
        f"links between workers are held to {rate * 8 / 1e9:g} Gbit/s (cluster={config.cluster.name}): the "
        f"parameters of {largest.shape.name} take {load_bytes / rate:,.0f} s, KV of 1,000 tokens "
        f"{kv_s:.2g} s; write a rate that suits the model, such as cluster.nic_gbps=200"
    )
