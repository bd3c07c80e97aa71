"""Copies of stage parameters in host memory that a policy keeps and evicts.

Such a copy shares its pages with a replica on the host (a forked process, copy-on-write). So it exists once
the replica's parameters are loaded, and costs no transfer. It ends only by order, or with its host.
"""

from collections.abc import Mapping

from serving.parameters.host_cache import CacheRules, HostCaches
from serving.vocabulary.actions import Load
from serving.vocabulary.layers import Part


class KeptCopies:
    """``caches``: the copies, including future ones. ``evicted``: number evicted, or lost with a host.

    A future copy holds its room from the order on, pinned. ``now_ns`` must not decrease from call to call.
    """

    __slots__ = ("_coming", "_sizes_bytes", "caches", "evicted")

    def __init__(self, hosts: int, memory_bytes: int, sizes_bytes: Mapping[Part, int]) -> None:
        self.caches = HostCaches(hosts, CacheRules(memory_bytes))
        self._sizes_bytes = sizes_bytes
        self._coming = set[tuple[int, Part]]()
        self.evicted = 0

    def has(self, host: int, part: Part) -> bool:
        """Whether loads may begin from a copy on the host."""
        return self.caches.holds(host, part) and (host, part) not in self._coming

    def hosts_of(self, part: Part) -> list[int]:
        """The hosts that have a copy, ascending."""
        return [host for host in self.caches.domains_of(part) if (host, part) not in self._coming]

    def on(self, host: int) -> list[Part]:
        """The parts of which the host has copies, by name."""
        return [part for part in self.caches.parts_in(host) if (host, part) not in self._coming]

    def keep(self, now_ns: int, host: int, part: Part, there: bool) -> None:
        """Keep a copy from now on; there: a replica of the host has the parameters."""
        caches = self.caches
        if caches.holds(host, part):
            if there and (host, part) in self._coming:
                self.came(now_ns, host, part)
            return
        ended = caches.admit(host, part, self._sizes_bytes[part], now_ns)
        assert ended == [], "a policy's answer is held against the memory that is free"
        if not there and not caches.is_pinned(host, part):  # an evicted copy still being read is complete
            self._coming.add((host, part))
            caches.pin(host, part, now_ns)

    def came(self, now_ns: int, host: int, part: Part) -> None:
        """A replica of the host has got the parameters: the copy is complete."""
        if (host, part) in self._coming:
            self._coming.discard((host, part))
            self.caches.unpin(host, part, now_ns)
        elif self.caches.holds(host, part):
            self.caches.look_up(host, part, now_ns)

    def begin(self, now_ns: int, load: Load) -> None:
        """Pin the copies that the load reads until it ends."""
        for kind, host in load.sources:
            if kind == "host":
                self.caches.pin(host, load.part, now_ns)

    def end(self, now_ns: int, load: Load) -> None:
        """Unpin the copies that the ended load read."""
        for kind, host in load.sources:
            if kind == "host":
                self.caches.unpin(host, load.part, now_ns)

    def evict(self, now_ns: int, host: int, part: Part) -> None:
        """Let no load begin from the copy; it keeps its bytes while a load still reads it."""
        if (host, part) in self._coming:
            self._coming.discard((host, part))
            self.caches.unpin(host, part, now_ns)
        elif self.caches.holds(host, part):
            self.evicted += 1
        else:
            return
        self.caches.retire(host, part)

    def forget(self, now_ns: int, part: Part) -> None:
        """Evict the part's copies on all hosts."""
        for host in self.caches.domains_of(part):
            self.evict(now_ns, host, part)

    def lose(self, host: int) -> None:
        """Remove all copies of a lost host."""
        self.evicted += len(self.on(host))
        self._coming = {copy for copy in self._coming if copy[0] != host}
        self.caches.lose(host)
