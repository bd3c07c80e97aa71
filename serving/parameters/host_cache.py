"""Parts of models in host memory: what each cache domain holds and evicts, hits and misses.

A cache domain is a host, or a part of one (a logical host). Copies end by time (some seconds after their last
use, or after they were loaded), for lack of room (the least recently used first), or by order. With
``keep_one_copy`` the last copy of a part over all domains ends neither by time nor for lack of room.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Literal

from serving.vocabulary.layers import Part

Since = Literal["use", "load"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """ttl_ns: how long a copy stays after its last ``since`` (None: for ever). capacity_bytes: per domain.

    Ties by time go by domain and part, so that nothing depends on the order of construction.
    """

    capacity_bytes: int
    ttl_ns: int | None = None
    since: Since = "use"
    keep_one_copy: bool = False


@dataclass(frozen=True, slots=True)
class Evicted:
    """A removed copy, and why: ``ttl``, ``room`` or ``order``."""

    domain: int
    part: Part
    why: str


_NO_ENTRY = -1


class _Copy:
    __slots__ = ("entry_ns", "loaded_ns", "pins", "size_bytes", "used_ns")

    def __init__(self, size_bytes: int, now_ns: int) -> None:
        self.entry_ns = _NO_ENTRY  # the time of its entry among the expiries
        self.size_bytes = size_bytes
        self.loaded_ns = self.used_ns = now_ns
        self.pins = 0  # loads that read it: it stays until they have ended


class HostCaches:
    """The copies of all domains. ``now_ns`` must not decrease from call to call.

    ``used_bytes``: of each domain; ``all_bytes``: of all.
    """

    __slots__ = (
        "_copies", "_domains_of", "_expiries", "_leaving", "all_bytes", "hits", "misses", "rules",
        "used_bytes",
    )  # fmt: skip

    def __init__(self, domains: int, rules: CacheRules) -> None:
        assert domains > 0 and rules.capacity_bytes >= 0
        self.rules = rules
        self._copies: list[dict[Part, _Copy]] = [{} for _ in range(domains)]
        # Removed by order while loads read them: no load begins from them, but their bytes are in use.
        self._leaving: list[dict[Part, _Copy]] = [{} for _ in range(domains)]
        self._domains_of: dict[Part, set[int]] = {}
        # A heap of (not later than the copy's end, domain, part); a use only delays the end. A copy that may
        # not end as it comes first has no entry until it may.
        self._expiries: list[tuple[int, int, Part]] = []
        self.used_bytes = [0] * domains
        self.all_bytes = 0
        self.hits = self.misses = 0

    def look_up(self, domain: int, part: Part, now_ns: int) -> bool:
        """Whether the domain has the part; counts a hit or miss, and a hit is a use."""
        copy = self._copies[domain].get(part)
        if copy is None:
            self.misses += 1
            return False
        self.hits += 1
        copy.used_ns = now_ns
        return True

    def holds(self, domain: int, part: Part) -> bool:
        """Whether the domain has the part; not counted as a look-up."""
        return part in self._copies[domain]

    def is_pinned(self, domain: int, part: Part) -> bool:
        """Whether a load is reading the domain's copy."""
        copy = self._copies[domain].get(part)
        return copy is not None and copy.pins > 0

    def used_ns(self, domain: int, part: Part) -> int:
        """When the domain's copy was last used."""
        return self._copies[domain][part].used_ns

    def domains_of(self, part: Part) -> list[int]:
        """The domains that have the part, ascending."""
        return sorted(self._domains_of.get(part, ()))

    def parts_in(self, domain: int) -> list[Part]:
        """The parts the domain has, by name."""
        return sorted(self._copies[domain])

    def pin(self, domain: int, part: Part, now_ns: int) -> None:
        """A load begins to read the copy, which cannot end until ``unpin``."""
        copy = self._copies[domain][part]
        copy.pins += 1
        copy.used_ns = now_ns

    def unpin(self, domain: int, part: Part, now_ns: int) -> None:
        """A load has finished reading the copy."""
        leaving = self._leaving[domain]
        copy = leaving.get(part) or self._copies[domain].get(part)
        if copy is None:
            return  # its host was lost meanwhile
        assert copy.pins > 0, "a copy was unpinned more often than pinned"
        copy.pins -= 1
        copy.used_ns = now_ns
        if copy.pins:
            return
        if part in leaving:
            self._use(domain, -leaving.pop(part).size_bytes)
        elif copy.entry_ns == _NO_ENTRY:
            self._enter(domain, part, copy)

    def admit(self, domain: int, part: Part, size_bytes: int, now_ns: int) -> list[Evicted] | None:
        """Keep a copy, evicting others as needed; None, with nothing changed, if there is no room.

        An existing copy, also one to be removed once loads have read it, is renewed as if loaded now.
        """
        copies, leaving = self._copies[domain], self._leaving[domain]
        if part in leaving:
            copies[part] = leaving.pop(part)
            copies[part].loaded_ns = copies[part].used_ns = now_ns
            self._joined(domain, part)
            return []
        if part in copies:
            copies[part].loaded_ns = copies[part].used_ns = now_ns
            return []
        victims = self._victims(domain, size_bytes)
        if victims is None:
            return None
        ended = [self._evict(domain, victim, "room") for victim in victims]
        copies[part] = _Copy(size_bytes, now_ns)
        self._joined(domain, part)
        self._use(domain, size_bytes)
        return ended

    def _joined(self, domain: int, part: Part) -> None:
        """Note that the domain has the part: neither this copy nor another is the last one."""
        domains = self._domains_of.setdefault(part, set())
        domains.add(domain)
        self._enter(domain, part, self._copies[domain][part])
        for other in domains if self.rules.keep_one_copy else ():
            copy = self._copies[other][part]
            if copy.entry_ns == _NO_ENTRY and not copy.pins:
                self._enter(other, part, copy)

    def _use(self, domain: int, size_bytes: int) -> None:
        self.used_bytes[domain] += size_bytes
        self.all_bytes += size_bytes

    def _enter(self, domain: int, part: Part, copy: _Copy) -> None:
        if self.rules.ttl_ns is not None:
            copy.entry_ns = self._since_ns(copy) + self.rules.ttl_ns
            heappush(self._expiries, (copy.entry_ns, domain, part))

    def drop(self, domain: int, part: Part) -> Evicted:
        """Remove a copy by order, even the last one; it must not be pinned."""
        assert self._copies[domain][part].pins == 0, "a copy that is being read was dropped"
        return self._evict(domain, part, "order")

    def retire(self, domain: int, part: Part) -> None:
        """Remove a copy by order: at once, or once no load reads it any more. No load may begin from it."""
        copy = self._copies[domain][part]
        if not copy.pins:
            self.drop(domain, part)
            return
        self._leaving[domain][part] = self._copies[domain].pop(part)
        self._domains_of[part].discard(domain)

    def lose(self, domain: int) -> list[Part]:
        """Remove the copies of a lost host. Returns the parts that have no copy left."""
        parts = self.parts_in(domain)
        for part in parts:
            self._evict(domain, part, "lost")
        self._leaving[domain] = {}
        self._use(domain, -self.used_bytes[domain])
        return [part for part in parts if not self._domains_of.get(part)]

    def expire(self, now_ns: int) -> list[Evicted]:
        """End every copy whose time is over, by domain and part."""
        ended = []
        for domain, part in self._expired_copies(now_ns):
            if self._is_last_copy(part):
                self._copies[domain][part].entry_ns = _NO_ENTRY
            else:
                ended.append(self._evict(domain, part, "ttl"))
        return ended

    def expiries_ns(self) -> list[int]:
        """When each copy ends if neither used nor kept as the last one; empty if copies stay for ever."""
        ttl_ns = self.rules.ttl_ns
        if ttl_ns is None:
            return []
        return [self._since_ns(copy) + ttl_ns for copies in self._copies for copy in copies.values()]

    def next_expiry_ns(self) -> int | None:
        """When ``expire`` may next have a copy to end; None if never."""
        ttl_ns, expiries = self.rules.ttl_ns, self._expiries
        while expiries and ttl_ns is not None:
            entry_ns, domain, part = expiries[0]
            copy = self._copies[domain].get(part)
            if copy is None or copy.entry_ns != entry_ns:
                heappop(expiries)  # of a copy that has ended
            elif copy.pins or self._is_last_copy(part):
                heappop(expiries)
                copy.entry_ns = _NO_ENTRY
            else:
                end_ns = self._since_ns(copy) + ttl_ns
                if end_ns <= entry_ns:
                    return end_ns
                copy.entry_ns = end_ns
                heapreplace(expiries, (end_ns, domain, part))
        return None

    def _expired_copies(self, now_ns: int) -> Iterable[tuple[int, Part]]:
        """The copies that are due, by domain and part; they have no entry any more."""
        due = set[tuple[int, Part]]()
        while (end_ns := self.next_expiry_ns()) is not None and end_ns <= now_ns:
            _, domain, part = heappop(self._expiries)
            due.add((domain, part))
        return sorted(due)

    def _victims(self, domain: int, size_bytes: int) -> list[Part] | None:
        """The least recently used copies that make room; None if all evictable copies are not enough."""
        copies = self._copies[domain]
        room = self.rules.capacity_bytes - self.used_bytes[domain]
        victims: list[Part] = []
        if room >= size_bytes:
            return victims
        for part in sorted(copies, key=lambda part: (copies[part].used_ns, part)):
            if room >= size_bytes:
                break
            if not copies[part].pins and not self._is_last_copy(part):
                victims.append(part)
                room += copies[part].size_bytes
        return victims if room >= size_bytes else None

    def _since_ns(self, copy: _Copy) -> int:
        return copy.used_ns if self.rules.since == "use" else copy.loaded_ns

    def _is_last_copy(self, part: Part) -> bool:
        return self.rules.keep_one_copy and len(self._domains_of[part]) == 1

    def _evict(self, domain: int, part: Part, why: str) -> Evicted:
        self._use(domain, -self._copies[domain].pop(part).size_bytes)
        self._domains_of[part].discard(domain)
        return Evicted(domain, part, why)
