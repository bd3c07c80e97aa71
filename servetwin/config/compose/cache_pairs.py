"""Which options of ``system/cache`` and ``system/provision`` fit together: a load needs a copy to read.

Only options of this package are checked. A copy that is missing later (a host is lost, a copy expires) is
reported by the run as a ``serving.protocols.scaling.Obstacle``.
"""

from typing import Final

from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.config import PolicyConfig, RunConfig
from serving.vocabulary.errors import UserError

_STORES: Final = "policies.provisioning:StoreProvisioner"
_INSTANCES: Final = ("policies.provisioning:NetworkProvisioner", "policies.provisioning:BinomialProvisioner")
_POOLED, _CACHED = "servetwin.assemble.copies:pooled", "servetwin.assemble.copies:cached"
_PLACES: Final = {"host": "host memory", "ssd": "an SSD", "remote": "a remote store"}


def check_cache_pair(config: RunConfig) -> None:
    """Refuse a pair with which no instance could ever load, with a UserError."""
    provision = config.system.provision
    why = None
    if provision.policy == _STORES:
        why = _no_store(config, _tiers(provision))
    elif provision.policy in _INSTANCES:
        why = _no_instance(config)
    if why is not None:
        raise UserError(
            f"system/provision={provision.name} does not fit system/cache={config.system.cache.name}: {why}"
        )


def _tiers(provision: PolicyConfig) -> list[str]:
    tiers = provision.params.get("tiers", [])
    return [tiers] if isinstance(tiers, str) else [str(tier) for tier in tiers]


def _no_store(config: RunConfig, tiers: list[str]) -> str | None:
    """Return why a provisioner of these tiers finds no parameters; None if it finds them."""
    name = str(config.cluster.topology)
    spec = load_cluster(name)
    if spec.remote is not None or ("ssd" in tiers and spec.ssd is not None):
        return None
    copies_end = _copies_end(config) if "host" in tiers else f"cluster={name} has none"
    if copies_end is None:
        return None
    others = [] if spec.ssd is None else ["system/provision=host_or_ssd"]
    instead = " or ".join(["system/cache=everywhere", *others, "system/provision=multicast"])
    if "host" not in tiers:
        instead = "system/provision=multicast"
    places = " or ".join(_PLACES.get(tier, tier) for tier in tiers)
    return f"instances load from {places} alone, and {copies_end}; write {instead}"


def _copies_end(config: RunConfig) -> str | None:
    """Return why host memory may have no copy when one is needed; None if copies stay."""
    cache, instances = config.system.cache, config.system.instances
    if cache.policy == _POOLED and cache.params.get("drop_when_deployed", True):
        return "the pool keeps no copy in host memory while an instance has the parameters"
    if cache.policy == _CACHED:
        if (ttl_s := cache.params.get("ttl_s", 30.0)) is not None:
            return f"a copy there ends after system.cache.ttl_s={ttl_s:g} and nothing brings it back"
        if instances.size == "minimum" and not _least(config):
            return "no host has a copy at the start, for no instance is there"
    return None


def _no_instance(config: RunConfig) -> str | None:
    """Return why at times neither an instance nor a host has the parameters; None if one always does."""
    if config.system.cache.policy != _CACHED or _least(config):
        return None
    key = "prefill_min" if config.system.instances.split else "both_min"
    return (
        "it loads from instances and from copies in host memory, such copies end or are not there at the "
        f"start, and no instance has to stay; write system.instances.{key}=1 or system/cache=pool"
    )


def _least(config: RunConfig) -> int:
    """Return the fewest instances of a model."""
    one = config.system.instances
    return one.prefill_min + one.decode_min if one.split else one.both_min
