"""Copies of parameters in host memory, as the elastic control plane uses them.

Three ways to keep them: ``PooledCopies`` (BlitzScale: one copy of each part on some host, none while the part
is deployed) and ``CachedCopies`` with a time to live (ServerlessLLM) or with a copy on every host (AllCache).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from serving.parameters.host_cache import HostCaches
from serving.parameters.parameter_pool import ParameterPool, Reload
from serving.parameters.usage import Usage
from serving.vocabulary.actions import Load
from serving.vocabulary.layers import Part


class Copies(Protocol):
    """Whole copies in host memory; ``now_ns`` must not decrease from call to call."""

    @property
    def caches(self) -> HostCaches:
        """The caches with the copies."""

    @property
    def usage(self) -> Usage:
        """Bytes in host memory, all hosts together."""

    def start(self, placed: Sequence[tuple[Part, int, int]]) -> None:
        """Place the parameters of these (part, replica, host) at time 0."""

    def hosts(self, part: Part, now_ns: int) -> list[int]:
        """The hosts whose memory has a whole copy, ascending."""

    def begin(self, load: Load, hosts: Sequence[int], now_ns: int) -> None:
        """Begin a load; ``hosts`` are those of its targets."""

    def end(self, load: Load, hosts: Sequence[int], fully_loaded: bool, now_ns: int) -> list[Reload]:
        """End a load with no target in progress; ``fully_loaded``: every target has everything.

        Returns what must be reloaded instead.
        """

    def deployed(self, part: Part, replica: int, host: int, now_ns: int) -> None:
        """Note that a replica has all parameters."""

    def before_release(self, part: Part, replica: int, now_ns: int) -> Reload | None:
        """What must be copied to a host before the replica may give up its parameters."""

    def may_release(self, part: Part, replica: int) -> bool:
        """Whether the replica may give up its parameters now."""

    def left(self, part: Part, replica: int, now_ns: int) -> None:
        """Note that the replica gave up its parameters."""

    def lost(self, part: Part, replica: int, now_ns: int) -> list[Reload]:
        """Note a lost replica, with parameters or without; returns what must be reloaded."""

    def lost_host(self, host: int, now_ns: int) -> list[Reload]:
        """Note a lost host with memory and SSD, after its replicas; returns what must be reloaded."""

    def settle(self, now_ns: int) -> None:
        """Stop counting copies that have expired by now."""


class PooledCopies:
    """The parameter pool: a copy of each part is in some memory at all times."""

    __slots__ = ("_drop", "_kept", "_reloads", "pool", "usage")

    def __init__(self, pool: ParameterPool, drop_when_deployed: bool) -> None:
        self.pool = pool
        self._drop = drop_when_deployed
        self._reloads: dict[tuple[Part, int], int] = {}  # (part, host) -> the load of its copy
        self._kept: set[Part] = set()  # parts whose last replica will leave: their host copy is needed
        self.usage = Usage()

    @property
    def caches(self) -> HostCaches:
        """The caches with the copies."""
        return self.pool.caches

    def start(self, placed: Sequence[tuple[Part, int, int]]) -> None:
        """Spread the first copies and note the placed replicas."""
        self.pool.spread(0)
        for part, replica, host in placed:
            self.deployed(part, replica, host, 0)
        self.usage.begin(self.caches.all_bytes)

    def hosts(self, part: Part, now_ns: int) -> list[int]:
        """The hosts with a whole copy."""
        return list(self.pool.places(part).domains)

    def begin(self, load: Load, hosts: Sequence[int], now_ns: int) -> None:
        """Pin the copies that the load reads; note the host copies that it makes."""
        for kind, host in load.sources:
            if kind == "host":
                self.caches.look_up(host, load.part, now_ns)
                self.caches.pin(host, load.part, now_ns)
        for kind, host in load.targets:
            if kind == "host":
                self._reloads[load.part, host] = load.load
        self._record_usage(now_ns)

    def end(self, load: Load, hosts: Sequence[int], fully_loaded: bool, now_ns: int) -> list[Reload]:
        """Unpin the copies that the load read; count those that it made."""
        part, reloads = load.part, list[Reload]()
        for kind, host in load.sources:
            if kind == "host":
                self.caches.unpin(host, part, now_ns)
        for kind, host in load.targets:
            if kind != "host" or self._reloads.get((part, host)) != load.load:
                continue  # the pool dropped this reload when its source was lost, and began another
            del self._reloads[part, host]
            if host in self.pool.places(part).coming:
                if fully_loaded:
                    self.pool.arrived(part, host, now_ns)
                else:
                    reloads += self.pool.reload_failed(part, host, now_ns)
        self._drop_unneeded_copies(part)
        self._record_usage(now_ns)
        return reloads

    def deployed(self, part: Part, replica: int, host: int, now_ns: int) -> None:
        """Count the replica as a place of the part."""
        self.pool.deployed(part, replica, host)
        self._kept.discard(part)
        self._drop_unneeded_copies(part)
        self._record_usage(now_ns)

    def before_release(self, part: Part, replica: int, now_ns: int) -> Reload | None:
        """Before the last copy leaves, request a host copy."""
        if self.pool.is_last_copy(part, replica):
            self._kept.add(part)
        reload = self.pool.bring_back(part, replica, now_ns)
        self._record_usage(now_ns)
        return reload

    def may_release(self, part: Part, replica: int) -> bool:
        """Whether the part has other copies, and no reload reads this one."""
        return self.pool.may_undeploy(part, replica)

    def left(self, part: Part, replica: int, now_ns: int) -> None:
        """Stop counting the replica as a place of the part."""
        self.pool.undeploy(part, replica)
        self._kept.discard(part)

    def lost(self, part: Part, replica: int, now_ns: int) -> list[Reload]:
        """Remove the lost replica's copy."""
        if replica not in self.pool.places(part).replicas:
            return []
        reloads = self.pool.lose_replica(part, replica, now_ns)
        self._record_usage(now_ns)
        return reloads

    def lost_host(self, host: int, now_ns: int) -> list[Reload]:
        """Remove the lost host's copies."""
        reloads = self.pool.lose_host(host, now_ns)
        self._record_usage(now_ns)
        return reloads

    def settle(self, now_ns: int) -> None:
        """Do nothing: these copies do not expire."""

    def _drop_unneeded_copies(self, part: Part) -> None:
        """Drop host copies of a deployed part, except while one is being read or made."""
        places = self.pool.places(part)
        if not self._drop or part in self._kept or not places.replicas or places.coming:
            return
        if not any(self.caches.is_pinned(host, part) for host in places.domains):
            self.pool.drop_host_copies(part)

    def _record_usage(self, now_ns: int) -> None:
        self.usage.set(now_ns, self.caches.all_bytes)


class CachedCopies:
    """Host caches: a load leaves a copy on its target's host, which ends by time or for lack of room.

    ``everywhere``: every host has every part from the start, and for ever (AllCache).
    """

    __slots__ = ("_coming", "_everywhere", "_pinned", "_renewed", "_sizes_bytes", "caches", "usage")

    def __init__(
        self,
        caches: HostCaches,
        sizes_bytes: Mapping[Part, int],
        everywhere: bool = False,
        renewed: bool = True,
    ) -> None:
        """``renewed``: a load that finds a copy restarts its time to live."""
        self._renewed = renewed
        self.caches = caches
        self._sizes_bytes = dict(sizes_bytes)
        self._everywhere = everywhere
        self._pinned: dict[int, list[int]] = {}  # load -> hosts whose copy it reads or makes
        self._coming: dict[tuple[Part, int], int] = {}  # incomplete copies -> the load that makes them
        self.usage = Usage()

    def start(self, placed: Sequence[tuple[Part, int, int]]) -> None:
        """Admit the first copies."""
        held = [(part, host) for part, _, host in placed]
        if self._everywhere:
            held = [(part, host) for part in self._sizes_bytes for host in range(len(self.caches.used_bytes))]
        for part, host in held:
            self.caches.admit(host, part, self._sizes_bytes[part], 0)
        self.usage.begin(self.caches.all_bytes)

    def hosts(self, part: Part, now_ns: int) -> list[int]:
        """The hosts with a whole copy."""
        self.settle(now_ns)
        return [host for host in self.caches.domains_of(part) if (part, host) not in self._coming]

    def begin(self, load: Load, hosts: Sequence[int], now_ns: int) -> None:
        """Pin the copies that the load reads or makes on its targets' hosts, as far as there is room."""
        self.settle(now_ns)
        caches, part, pinned = self.caches, load.part, list[int]()
        for host in hosts:
            if (part, host) in self._coming:
                caches.misses += 1  # another load makes it; this one reads the store as well
            elif caches.look_up(host, part, now_ns):
                pinned.append(host)
            elif caches.admit(host, part, self._sizes_bytes[part], now_ns) is not None:
                self._coming[part, host] = load.load
                pinned.append(host)
        for host in pinned:
            caches.pin(host, part, now_ns)
        self._pinned[load.load] = pinned
        self._record_usage(now_ns)

    def end(self, load: Load, hosts: Sequence[int], fully_loaded: bool, now_ns: int) -> list[Reload]:
        """Unpin the load's copies; count those that it made."""
        for host in self._pinned.pop(load.load):
            self.caches.unpin(host, load.part, now_ns)
            if not self.caches.holds(host, load.part):
                continue  # the host is lost
            fetched = self._coming.get((load.part, host)) == load.load
            if fully_loaded and (fetched or self._renewed):  # its time begins when it is there
                self.caches.admit(host, load.part, self._sizes_bytes[load.part], now_ns)
            if fetched:
                del self._coming[load.part, host]
                if not fully_loaded:
                    self.caches.drop(host, load.part)
        self._record_usage(now_ns)
        return []

    def deployed(self, part: Part, replica: int, host: int, now_ns: int) -> None:
        """Do nothing: caches do not count replicas."""

    def before_release(self, part: Part, replica: int, now_ns: int) -> Reload | None:
        """Need no copy."""
        return None

    def may_release(self, part: Part, replica: int) -> bool:
        """Always true."""
        return True

    def left(self, part: Part, replica: int, now_ns: int) -> None:
        """Do nothing."""

    def lost(self, part: Part, replica: int, now_ns: int) -> list[Reload]:
        """Reload nothing."""
        return []

    def lost_host(self, host: int, now_ns: int) -> list[Reload]:
        """Remove the lost host's copies; reload nothing."""
        self.caches.lose(host)
        for key in [key for key in self._coming if key[1] == host]:
            del self._coming[key]
        self._record_usage(now_ns)
        return []

    def settle(self, now_ns: int) -> None:
        """End every copy whose time is over, each at its own time."""
        while (due_ns := self.caches.next_expiry_ns()) is not None and due_ns <= now_ns:
            self.caches.expire(due_ns)
            # A copy that a load read beyond its time ends together with the load.
            self._record_usage(max(due_ns, self.usage.since_ns))

    def _record_usage(self, now_ns: int) -> None:
        self.usage.set(now_ns, self.caches.all_bytes)
