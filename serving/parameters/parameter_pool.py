"""Where the parameters of every hosted model are, and that none is without a copy in memory.

Places are the GPUs of replicas, host memory (``serving.parameters.host_cache``), SSDs and the remote store,
which has all models. The invariant: each hosted model has a whole copy in the memory of some GPU or host,
or one is on its way to a host. A cache domain is here the host of the same number.

A copy on its way to a host holds its room from the start, pinned. So ``HostCaches.holds`` is true of it while
it is not whole yet: whoever looks for a source asks the pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.parameters.host_cache import Ended, HostCaches
from serving.vocabulary.actions import Stop
from serving.vocabulary.errors import UserError

REMOTE: Stop = ("remote", 0)


@dataclass(frozen=True, slots=True)
class Reload:
    """A copy of ``model`` to be brought from ``source`` to the memory of host ``domain``, and why.

    ``ended``: the copies there that made room for it.
    """

    model: str
    source: Stop
    domain: int
    ended: tuple[Ended, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Places:
    """Whole copies of a model, ascending: replicas, hosts' memory, SSDs. ``coming``: hosts one is sent to."""

    replicas: tuple[int, ...]
    domains: tuple[int, ...]
    ssds: tuple[int, ...]
    coming: tuple[int, ...]

    @property
    def in_memory(self) -> bool:
        """Whether a GPU or a host has it."""
        return bool(self.replicas or self.domains)


class ParameterPool:
    """The copies of all hosted models. Methods that take ``now_ns`` need it not to go back.

    ``sizes_bytes`` by model; ``ssds``: the hosts whose SSD has the model. The caches must keep the last host
    copy, so that time and room alone never end the last copy in memory. What a method returns as a ``Reload``
    is under way for the pool: the caller starts it and tells ``arrived`` or ``reload_failed``.
    """

    __slots__ = ("_alive", "_coming", "_remote", "_replicas", "_sizes_bytes", "_ssds", "caches")

    def __init__(
        self,
        caches: HostCaches,
        sizes_bytes: Mapping[str, int],
        ssds: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        assert caches.rules.keep_one_copy, "the caches of a pool keep the last copy"
        self.caches = caches
        self._sizes_bytes = dict(sizes_bytes)
        self._ssds = {model: set((ssds or {}).get(model, ())) for model in sizes_bytes}
        self._replicas: dict[str, dict[int, int]] = {model: {} for model in sizes_bytes}  # replica: its host
        self._coming: dict[str, dict[int, Stop]] = {model: {} for model in sizes_bytes}  # domain: the source
        self._alive = set(range(len(caches.used_bytes)))
        self._remote = True  # until nothing could be loaded from there

    def models(self) -> list[str]:
        """The hosted models, by name."""
        return sorted(self._sizes_bytes)

    def places(self, model: str) -> Places:
        """Where the model is now."""
        coming = self._coming[model]
        domains = [domain for domain in self.caches.domains_of(model) if domain not in coming]
        replicas, ssds = sorted(self._replicas[model]), sorted(self._ssds[model])
        return Places(tuple(replicas), tuple(domains), tuple(ssds), tuple(sorted(coming)))

    def spread(self, now_ns: int) -> list[tuple[str, int]]:
        """One host copy of each model, there from the start: (model, domain) by model.

        The largest models first, each to the host with the fewest bytes, the lowest number among equals.

        Raises:
            UserError: the hosts' memory is too small.
        """
        put = []
        for model in sorted(self._sizes_bytes, key=lambda model: (-self._sizes_bytes[model], model)):
            placed = self._admit(model, self._alive, now_ns)
            if placed is None:
                raise UserError(
                    f"no host has {self._sizes_bytes[model]} bytes of memory left for the copy of {model}: "
                    "give the hosts' caches more, or host fewer models"
                )
            put.append((model, placed[0]))
        return sorted(put)

    def deployed(self, model: str, replica: int, domain: int) -> None:
        """A replica on host ``domain`` has all parameters of the model."""
        assert domain in self._alive, f"host {domain} is gone"
        assert all(replica not in held for held in self._replicas.values()), f"replica {replica} is taken"
        self._replicas[model][replica] = domain

    def drop_host_copies(self, model: str) -> list[Ended]:
        """Free the host memory of a model that a replica has; no load may be reading these copies."""
        places = self.places(model)
        assert places.replicas, f"no replica has {model}: its host copy stays"
        return [self.caches.drop(domain, model) for domain in places.domains]

    def is_last_copy(self, model: str, replica: int) -> bool:
        """Whether without this replica the model would be in no memory."""
        places = self.places(model)
        return places.replicas == (replica,) and not places.domains

    def bring_back(self, model: str, replica: int, now_ns: int) -> Reload | None:
        """The host copy to be made before a replica goes that is the last copy, on its own host if it fits.

        None when there is nothing to start: other copies exist, one is coming, or no host has room (then
        ``is_last_copy`` stays true, and the replica has to stay).
        """
        if not self.is_last_copy(model, replica) or self._coming[model]:
            return None
        own = {self._replicas[model][replica]}
        placed = self._admit(model, own, now_ns) or self._admit(model, self._alive - own, now_ns)
        reason = f"replica {replica} has the last copy and is to go"
        return self._begin(model, ("replica", replica), placed, reason, now_ns)

    def may_undeploy(self, model: str, replica: int) -> bool:
        """Whether a replica may give up its parameters: others have them, and no reload reads these."""
        read = ("replica", replica) in self._coming[model].values()
        return not read and not self.is_last_copy(model, replica)

    def undeploy(self, model: str, replica: int) -> None:
        """A replica gives up its parameters, which it must be allowed to: see ``bring_back``."""
        assert self.may_undeploy(model, replica), (
            f"replica {replica} has the last copy of {model}, or is read"
        )
        del self._replicas[model][replica]

    def lose_replica(self, model: str, replica: int, now_ns: int) -> list[Reload]:
        """A replica is gone, the last copy or not: what must be reloaded now."""
        del self._replicas[model][replica]
        self._forget_from(("replica", replica), now_ns)
        return self.repair(now_ns)

    def lose_host(self, domain: int, now_ns: int) -> list[Reload]:
        """A host is gone with its memory, SSD, replicas and what came to it: what must be reloaded now."""
        self._alive.remove(domain)
        for model in self.models():
            gone = [replica for replica, host in self._replicas[model].items() if host == domain]
            for replica in gone:
                del self._replicas[model][replica]
                self._forget_from(("replica", replica), now_ns)
            self._ssds[model].discard(domain)
            self._coming[model].pop(domain, None)
        self.caches.lose(domain)
        return self.repair(now_ns)

    def host_returned(self, domain: int, now_ns: int) -> list[Reload]:
        """A host that was gone is back, empty: what has room now."""
        assert domain not in self._alive, f"host {domain} was not gone"
        self._alive.add(domain)
        return self.repair(now_ns)

    def arrived(self, model: str, domain: int, now_ns: int) -> None:
        """A reload is done: the copy is whole."""
        del self._coming[model][domain]
        self.caches.unpin(domain, model, now_ns)

    def reload_failed(self, model: str, domain: int, now_ns: int) -> list[Reload]:
        """A reload ended before its copy was whole: what must be reloaded instead.

        The store that it read from is asked no more: it, or the way from it, is lost.
        """
        source = self._coming[model][domain]
        if source == REMOTE:
            self._remote = False
        elif source[0] == "ssd":
            self._ssds[model].discard(domain)
        self._forget(model, domain, now_ns)
        return self.repair(now_ns)

    def stranded(self) -> list[str]:
        """Models that are in no memory, and on their way to none."""
        return [
            model
            for model in self.models()
            if not (self._coming[model] or self._replicas[model] or self.caches.domains_of(model))
        ]

    def is_lost(self, model: str) -> bool:
        """Whether nobody could bring the model back to memory: no host is left, or no store has it."""
        return not (self._alive and (self._ssds[model] or self._remote))

    def repair(self, now_ns: int) -> list[Reload]:
        """Reloads for the stranded models that find room; call again when room has become free."""
        reloads = (self._reload(model, now_ns) for model in self.stranded())
        return [reload for reload in reloads if reload is not None]

    def _reload(self, model: str, now_ns: int) -> Reload | None:
        """From a host's own SSD to its memory if that fits, else from the remote store."""
        placed = self._admit(model, self._ssds[model], now_ns)
        source: Stop = REMOTE if placed is None else ("ssd", placed[0])
        if placed is None and self._remote:
            placed = self._admit(model, self._alive, now_ns)
        return self._begin(model, source, placed, "no copy is in memory", now_ns)

    def _admit(self, model: str, domains: set[int], now_ns: int) -> tuple[int, tuple[Ended, ...]] | None:
        """Take room in one of these hosts, the one with the fewest bytes first: (host, copies that ended)."""
        for domain in sorted(domains, key=lambda domain: (self.caches.used_bytes[domain], domain)):
            ended = self.caches.admit(domain, model, self._sizes_bytes[model], now_ns)
            if ended is not None:
                return domain, tuple(ended)
        return None

    def _begin(
        self, model: str, source: Stop, placed: tuple[int, tuple[Ended, ...]] | None, reason: str, now_ns: int
    ) -> Reload | None:
        if placed is None:
            return None
        domain, ended = placed
        self.caches.pin(domain, model, now_ns)
        self._coming[model][domain] = source
        return Reload(model, source, domain, ended, reason)

    def _forget(self, model: str, domain: int, now_ns: int) -> None:
        del self._coming[model][domain]
        self.caches.unpin(domain, model, now_ns)
        self.caches.drop(domain, model)

    def _forget_from(self, source: Stop, now_ns: int) -> None:
        for model, coming in self._coming.items():
            for domain in [domain for domain, one in coming.items() if one == source]:
                self._forget(model, domain, now_ns)


def broken(pool: ParameterPool) -> list[str]:
    """What does not hold of a pool, one sentence each; empty when all is well."""
    stranded = [model for model in pool.stranded() if not pool.is_lost(model)]
    found = [f"{model} is in no memory and on its way to none" for model in stranded]
    for model in pool.models():
        found += [
            f"{model} comes to host {domain}, which keeps no room for it"
            for domain in pool.places(model).coming
            if not pool.caches.holds(domain, model)
        ]
    return found
