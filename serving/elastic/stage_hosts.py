"""Memory and CPU cores of the hosts: copies of stages, and what replicas have."""

from collections import Counter

from serving.elastic.stage_setup import StageScaling
from serving.vocabulary.layers import Part


class HostResources:
    """``copies``: (host, part) -> when it was last loaded from or put there. ``lost``: hosts; ``ssds``: SSDs.

    A copy is one of a stage that a replica on the host has or had; it is there when that replica is.
    """

    __slots__ = ("_setup", "_wanted", "copies", "evicted", "lost", "lost_ssds", "taken_cores")

    def __init__(self, setup: StageScaling) -> None:
        self._setup = setup
        self.copies: dict[tuple[int, Part], int] = {}
        self._wanted: set[tuple[int, Part]] = set()  # their replica still loads
        self.taken_cores = Counter[int]()
        self.evicted = 0  # copies that were forgotten, or lost with their host
        self.lost = set[int]()
        self.lost_ssds = set[int]()

    def free_cores(self, host: int) -> int:
        """That no replica has."""
        return self._setup.hosts.cpu_cores - self.taken_cores[host]

    def used_bytes(self, host: int) -> int:
        """Of the copies, those to come too."""
        sizes = self._setup.sizes_bytes
        return sum([sizes[part] for where, part in (*self.copies, *self._wanted) if where == host])

    def keep(self, now_ns: int, host: int, part: Part, there: bool) -> None:
        """A copy stays from now on; there: a replica of the host has the parameters."""
        if (host, part) in self.copies:
            return
        if there:
            self._wanted.discard((host, part))
            self.copies[host, part] = now_ns
        else:
            self._wanted.add((host, part))

    def came(self, now_ns: int, host: int, part: Part) -> None:
        """A replica of the host has the parameters."""
        if (host, part) in self._wanted:
            self.keep(now_ns, host, part, True)
        elif (host, part) in self.copies:
            self.copies[host, part] = now_ns

    def evict(self, host: int, part: Part) -> None:
        """The copy is gone; loads that read from it go on."""
        self.evicted += self.copies.pop((host, part), None) is not None
        self._wanted.discard((host, part))

    def forget(self, part: Part) -> None:
        """No host has a copy of it any more."""
        for host, own in [*self.copies, *self._wanted]:
            if own == part:
                self.evict(host, part)

    def lose(self, host: int) -> None:
        """Its memory, its SSD and its GPUs are gone."""
        self.lost.add(host)
        for where, part in [*self.copies, *self._wanted]:
            if where == host:
                self.evict(where, part)
