"""Refusals of settings that servers behind HTTP cannot serve, one sentence each."""

from servetwin.config.config import RunConfig
from servetwin.config.http_config import HTTP, servers_of
from serving.vocabulary.errors import UserError


def check_servers(config: RunConfig) -> None:
    """Refuse what no server supports. Limits of a particular server are known after probing it."""
    if config.world != HTTP:
        return
    system = config.system
    servers = len(servers_of(config.http))
    keeps = system.elastic and system.instances.keep_parameters_ms > 0
    full = system.instances.size == "full"
    split, moves = system.instances.split, system.migration.name != "none"
    gpus, each = config.cluster.gpus, config.model.tp * config.model.pp
    if gpus != servers * each:
        raise UserError(
            f"http.servers has {servers} servers of {each} GPUs, and the cluster has {gpus}: write "
            f"workers={servers * each} or a cluster of so many"
        )
    for what, holds in (
        (f"system/scaler={system.scaler.name}", system.elastic and system.scaler.name != "load_monitor"),
        (f"system/provision={system.provision.name}", system.elastic and system.provision.name != "host"),
        ("system.instances.split=true with a scaler", system.elastic and split),
        ("system.instances.keep_parameters_ms", keeps),
        (f"system/stages={system.stages.name}", system.in_stages),
        (f"system.instances.size={system.instances.size}", not system.elastic and not full),
        (f"system/migration={system.migration.name} where instances prefill or decode", moves and split),
        (f"system/migration={system.migration.name} with a scaler", moves and system.elastic),
        (f"system/live={system.live.name}", system.live.name != "none"),
        (f"cluster.start={config.cluster.start}", config.cluster.start != "warm"),
        (f"models={config.models.name}", config.models.name != "one"),
    ):
        if holds:
            raise UserError(
                f"{what} asks for actions that servers behind HTTP do not carry out, which have one "
                "model each, stay, or sleep and wake where one does both (system=allcache "
                "system.instances.split=false): write world=workers, or a system without, such as system=vllm"
            )
    if moves and config.migration.mode != "recompute":
        raise UserError(
            f"migration.mode={config.migration.mode} copies KV, which servers behind HTTP do not: write "
            "migration.mode=recompute, which aborts a request here and resumes it elsewhere"
        )
    if config.series.period_s is not None:
        raise UserError(
            "series.period_s reads engines of ours, and servers behind HTTP have their own: leave it out"
        )
