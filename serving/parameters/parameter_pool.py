"""Where every hosted part of a model is; keeps at least one copy of each in memory.

Places are the GPUs of replicas, host memory (``serving.parameters.host_cache``), SSDs and the remote store,
which has everything. The invariant: each hosted part has a whole copy in the memory of some GPU or host, or a
copy is in transit to a host. Here a cache domain is the host of the same number.

A copy in transit to a host holds its room from the start, pinned. So ``HostCaches.holds`` is true of it while
it is still incomplete: look for a source in the pool, not in the caches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.parameters.host_cache import Evicted, HostCaches
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import Part

REMOTE: Endpoint = ("remote", 0)


@dataclass(frozen=True, slots=True)
class Reload:
    """A copy to be loaded into the memory of a host.

    ``part``: what is copied. ``source``: the endpoint that has it. ``domain``: the host. ``ended``: the
    copies there that made room for it.
    """

    part: Part
    source: Endpoint
    domain: int
    ended: tuple[Evicted, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CopyLocations:
    """Whole copies of a part, ascending: replicas, hosts' memory, SSDs. ``coming``: hosts it is sent to."""

    replicas: tuple[int, ...]
    domains: tuple[int, ...]
    ssds: tuple[int, ...]
    coming: tuple[int, ...]

    @property
    def in_memory(self) -> bool:
        """Whether a GPU or a host's memory has it."""
        return bool(self.replicas or self.domains)


class ParameterPool:
    """The copies of all hosted parts. ``now_ns`` must not decrease from call to call.

    ``sizes_bytes`` by part; ``ssds``: the hosts whose SSD has the part. The caches must keep the last host
    copy, so that time and room alone never end the last copy in memory. The pool counts a returned ``Reload``
    as in progress: the caller starts it and calls ``arrived`` or ``reload_failed``.
    """

    __slots__ = ("_alive", "_coming", "_remote", "_replicas", "_sizes_bytes", "_ssds", "caches")

    def __init__(
        self,
        caches: HostCaches,
        sizes_bytes: Mapping[Part, int],
        ssds: Mapping[Part, frozenset[int]] | None = None,
    ) -> None:
        assert caches.rules.keep_one_copy, "the caches of a pool keep the last copy"
        self.caches = caches
        self._sizes_bytes = dict(sizes_bytes)
        self._ssds = {part: set((ssds or {}).get(part, ())) for part in sizes_bytes}
        self._replicas: dict[Part, dict[int, int]] = {part: {} for part in sizes_bytes}  # replica: its host
        # Domain: the source
        self._coming: dict[Part, dict[int, Endpoint]] = {part: {} for part in sizes_bytes}
        self._alive = set(range(len(caches.used_bytes)))
        self._remote = True  # until no load from it is possible

    def parts(self) -> list[Part]:
        """The hosted parts, by name."""
        return sorted(self._sizes_bytes)

    def places(self, part: Part) -> CopyLocations:
        """Where the part is now."""
        coming = self._coming[part]
        domains = [domain for domain in self.caches.domains_of(part) if domain not in coming]
        replicas, ssds = sorted(self._replicas[part]), sorted(self._ssds[part])
        return CopyLocations(tuple(replicas), tuple(domains), tuple(ssds), tuple(sorted(coming)))

    def spread(self, now_ns: int) -> list[tuple[Part, int]]:
        """Place one host copy of each part at the start; returns (part, domain) by part.

        The largest parts come first, each to the host with the fewest bytes, on a tie the lowest number.

        Raises:
        UserError: the hosts' memory is too small.
        """
        put = []
        for part in sorted(self._sizes_bytes, key=lambda part: (-self._sizes_bytes[part], part)):
            placed = self._admit(part, self._alive, now_ns)
            if placed is None:
                raise UserError(
                    f"no host has {self._sizes_bytes[part]} bytes of memory left for the copy of {part}: "
                    "give the hosts' caches more, or host fewer models"
                )
            put.append((part, placed[0]))
        return sorted(put)

    def deployed(self, part: Part, replica: int, domain: int) -> None:
        """A replica on host ``domain`` has loaded the whole part."""
        assert domain in self._alive, f"host {domain} is gone"
        assert all(replica not in held for held in self._replicas.values()), f"replica {replica} is taken"
        self._replicas[part][replica] = domain

    def drop_host_copies(self, part: Part) -> list[Evicted]:
        """Free the host memory of a part that a replica has; no load may be reading these copies."""
        places = self.places(part)
        assert places.replicas, f"no replica has {part}: its host copy stays"
        return [self.caches.drop(domain, part) for domain in places.domains]

    def is_last_copy(self, part: Part, replica: int) -> bool:
        """Whether the part would be in no memory without this replica."""
        places = self.places(part)
        return places.replicas == (replica,) and not places.domains

    def bring_back(self, part: Part, replica: int, now_ns: int) -> Reload | None:
        """The host copy to make before the last replica leaves, on its own host if it fits there.

        None if there is nothing to start: other copies exist, one is coming, or no host has room (then
        ``is_last_copy`` stays true, and the replica has to stay).
        """
        if not self.is_last_copy(part, replica) or self._coming[part]:
            return None
        own = {self._replicas[part][replica]}
        placed = self._admit(part, own, now_ns) or self._admit(part, self._alive - own, now_ns)
        reason = f"replica {replica} has the last copy and is to go"
        return self._begin(part, ("replica", replica), placed, reason, now_ns)

    def may_undeploy(self, part: Part, replica: int) -> bool:
        """Whether a replica may give up its parameters: others have them, and no reload reads these."""
        read = ("replica", replica) in self._coming[part].values()
        return not read and not self.is_last_copy(part, replica)

    def undeploy(self, part: Part, replica: int) -> None:
        """A replica gives up its parameters; only after ``bring_back`` allows it."""
        assert self.may_undeploy(part, replica), f"replica {replica} has the last copy of {part}, or is read"
        del self._replicas[part][replica]

    def lose_replica(self, part: Part, replica: int, now_ns: int) -> list[Reload]:
        """A replica is lost, the last copy or not; returns what must be reloaded now."""
        del self._replicas[part][replica]
        self._forget_from(("replica", replica), now_ns)
        return self.repair(now_ns)

    def lose_host(self, domain: int, now_ns: int) -> list[Reload]:
        """A host is lost with memory, SSD, replicas and reloads to it; returns what must be reloaded now."""
        self._alive.remove(domain)
        for part in self.parts():
            lost_replicas = [replica for replica, host in self._replicas[part].items() if host == domain]
            for replica in lost_replicas:
                del self._replicas[part][replica]
                self._forget_from(("replica", replica), now_ns)
            self._ssds[part].discard(domain)
            self._coming[part].pop(domain, None)
        self.caches.lose(domain)
        return self.repair(now_ns)

    def host_returned(self, domain: int, now_ns: int) -> list[Reload]:
        """A lost host is back, empty; returns reloads that now have room."""
        assert domain not in self._alive, f"host {domain} was not gone"
        self._alive.add(domain)
        return self.repair(now_ns)

    def arrived(self, part: Part, domain: int, now_ns: int) -> None:
        """A reload has ended: the copy is complete."""
        del self._coming[part][domain]
        self.caches.unpin(domain, part, now_ns)

    def reload_failed(self, part: Part, domain: int, now_ns: int) -> list[Reload]:
        """A reload ended before its copy was complete; returns what must be reloaded instead.

        The pool reads from that store no more: the store, or the path from it, is lost.
        """
        source = self._coming[part][domain]
        if source == REMOTE:
            self._remote = False
        elif source[0] == "ssd":
            self._ssds[part].discard(domain)
        self._forget(part, domain, now_ns)
        return self.repair(now_ns)

    def stranded(self) -> list[Part]:
        """Parts that are in no memory and in transit to none."""
        return [
            part
            for part in self.parts()
            if not (self._coming[part] or self._replicas[part] or self.caches.domains_of(part))
        ]

    def is_lost(self, part: Part) -> bool:
        """Whether the part cannot be brought back to memory: no host is left, or no store has it."""
        return not (self._alive and (self._ssds[part] or self._remote))

    def repair(self, now_ns: int) -> list[Reload]:
        """Reloads for the stranded parts that find room; call again once room was freed."""
        reloads = (self._reload(part, now_ns) for part in self.stranded())
        return [reload for reload in reloads if reload is not None]

    def _reload(self, part: Part, now_ns: int) -> Reload | None:
        """From a host's own SSD to its memory if it fits, else from the remote store."""
        placed = self._admit(part, self._ssds[part], now_ns)
        source: Endpoint = REMOTE if placed is None else ("ssd", placed[0])
        if placed is None and self._remote:
            placed = self._admit(part, self._alive, now_ns)
        return self._begin(part, source, placed, "no copy is in memory", now_ns)

    def _admit(self, part: Part, domains: set[int], now_ns: int) -> tuple[int, tuple[Evicted, ...]] | None:
        """Take room on one of these hosts, fewest bytes first; returns (host, copies that ended)."""
        for domain in sorted(domains, key=lambda domain: (self.caches.used_bytes[domain], domain)):
            ended = self.caches.admit(domain, part, self._sizes_bytes[part], now_ns)
            if ended is not None:
                return domain, tuple(ended)
        return None

    def _begin(
        self,
        part: Part,
        source: Endpoint,
        placed: tuple[int, tuple[Evicted, ...]] | None,
        reason: str,
        now_ns: int,
    ) -> Reload | None:
        if placed is None:
            return None
        domain, ended = placed
        self.caches.pin(domain, part, now_ns)
        self._coming[part][domain] = source
        return Reload(part, source, domain, ended, reason)

    def _forget(self, part: Part, domain: int, now_ns: int) -> None:
        del self._coming[part][domain]
        self.caches.unpin(domain, part, now_ns)
        self.caches.drop(domain, part)

    def _forget_from(self, source: Endpoint, now_ns: int) -> None:
        for part, coming in self._coming.items():
            for domain in [domain for domain, coming_source in coming.items() if coming_source == source]:
                self._forget(part, domain, now_ns)


def broken(pool: ParameterPool) -> list[str]:
    """The broken invariants of a pool, one sentence each; empty if none."""
    stranded = [part for part in pool.stranded() if not pool.is_lost(part)]
    faults = [f"{part}: in no memory and on their way to none" for part in stranded]
    for part in pool.parts():
        faults += [
            f"{part}: a copy comes to host {domain}, which keeps no room for it"
            for domain in pool.places(part).coming
            if not pool.caches.holds(domain, part)
        ]
    return faults
