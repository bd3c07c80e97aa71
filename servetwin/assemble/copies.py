"""The policies for copies in host memory that ``system/cache`` chooses from."""

from collections.abc import Mapping
from typing import Final

from serving.parameters.copies import CachedCopies, Copies, PooledCopies
from serving.parameters.host_cache import CacheRules, HostCaches
from serving.parameters.parameter_pool import ParameterPool
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import Part

_NO_BOUND: Final = 1 << 62
GB: Final = 10**9


def pooled(
    sizes_bytes: Mapping[Part, int], hosts: int, host_gb: float | None = None, drop_when_deployed: bool = True
) -> Copies:
    """BlitzScale's parameter pool: one copy of each model somewhere, none in host memory if deployed."""
    capacity, largest = _capacity(host_gb), max(sizes_bytes.values())
    if largest > capacity:
        raise UserError(
            f"system.cache.host_gb={host_gb:g} does not hold the {largest / GB:.0f} GB of the largest model: "
            "write a larger one, or leave it out"
        )
    rules = CacheRules(capacity, keep_one_copy=True)
    ssds = {part: frozenset(range(hosts)) for part in sizes_bytes}
    pool = ParameterPool(HostCaches(hosts, rules), sizes_bytes, ssds)
    return PooledCopies(pool, drop_when_deployed)


def cached(
    sizes_bytes: Mapping[Part, int],
    hosts: int,
    *,
    ttl_s: float | None = 30.0,
    since: str = "load",
    host_gb: float | None = None,
    max_models: int | None = None,
) -> Copies:
    """ServerlessLLM's caches: what a host loads stays in its memory for ``ttl_s`` seconds.

    ``since``: counted from the last ``load`` (from here to a GPU or from the store), the last ``use`` (only
    loads use a copy, so it differs during a load) or the last ``fetch`` from the store, for any use.
    ``host_gb``: memory of one host for copies; ``max_models``: or room for so many of the largest model.
    """
    if since not in ("load", "use", "fetch"):
        raise ValueError(f"since is {since}, and must be load, use or fetch")
    if ttl_s is not None and ttl_s <= 0:
        raise ValueError(f"ttl_s is {ttl_s:g}, and must be above 0, or null for no end")
    if max_models is not None and max_models < 0:
        raise ValueError(f"max_models is {max_models}, and must be at least 0, or null for no bound")
    capacity = _capacity(host_gb)
    if max_models is not None:
        capacity = max_models * max(sizes_bytes.values())
    ttl_ns = None if ttl_s is None else round(ttl_s * 1e9)
    rules = CacheRules(capacity, ttl_ns, "use" if since == "use" else "load")
    return CachedCopies(HostCaches(hosts, rules), sizes_bytes, renewed=since != "fetch")


def everywhere(sizes_bytes: Mapping[Part, int], hosts: int, host_gb: float | None = None) -> Copies:
    """AllCache: every host keeps every model for the whole run."""
    capacity, needed = _capacity(host_gb), sum(sizes_bytes.values())
    if needed > capacity:
        raise UserError(
            f"system.cache.host_gb={host_gb:g} does not hold the {needed / GB:.0f} GB of all models: write a "
            "larger one, or leave it out"
        )
    return CachedCopies(HostCaches(hosts, CacheRules(capacity)), sizes_bytes, everywhere=True)


def _capacity(host_gb: float | None) -> int:
    if host_gb is None:
        return _NO_BOUND
    if host_gb <= 0:
        raise ValueError(f"host_gb is {host_gb:g}, and must be above 0, or null for no bound")
    return round(host_gb * GB)
