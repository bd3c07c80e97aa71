"""Memory and CPU cores of the hosts: copies of stages, and what replicas have."""

from collections import Counter
from collections.abc import Callable

from serving.elastic.stage_setup import StageScaling
from serving.vocabulary.layers import Part


class HostResources:
    """``copies``: (host, part) -> when last loaded from or put there. ``lost``: hosts; ``lost_ssds``: SSDs.

    A copy is one of a stage that a replica on the host has or had; it is there when that replica is.
    ``reads``: whether a load under way reads a host's copy. Evicted, it keeps its bytes until that ends.
    """

    __slots__ = (
        "_evicted_in_use", "_setup", "_wanted", "copies", "evicted", "lost", "lost_ssds", "reads",
        "taken_cores",
    )  # fmt: skip

    def __init__(self, setup: StageScaling, reads: Callable[[int, Part], bool]) -> None:
        self._setup, self.reads = setup, reads
        self._evicted_in_use: set[tuple[int, Part]] = set()
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
        """Of the copies, those to come too, and those evicted that a load still reads."""
        sizes = self._setup.sizes_bytes
        self._evicted_in_use = {one for one in self._evicted_in_use if self.reads(*one)}
        every = *self.copies, *self._wanted, *self._evicted_in_use
        return sum([sizes[part] for where, part in every if where == host])

    @property
    def hosts_with_copies(self) -> set[int]:
        """Hosts whose memory has some, or will."""
        return {host for host, _ in (*self.copies, *self._wanted, *self._evicted_in_use)}

    @property
    def most_bytes(self) -> int:
        """That copies may use of a host's memory."""
        return int(self._setup.copies_share * self._setup.hosts.memory_bytes)

    def keep(self, now_ns: int, host: int, part: Part, there: bool) -> None:
        """A copy stays from now on; there: a replica of the host has the parameters."""
        if (host, part) in self.copies:
            return
        still = (host, part) in self._evicted_in_use and self.reads(host, part)
        self._evicted_in_use.discard((host, part))
        if there or still:
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
        """No load begins from the copy any more; while one still reads it, it keeps its bytes."""
        if self.copies.pop((host, part), None) is not None:
            self.evicted += 1
            if self.reads(host, part):
                self._evicted_in_use.add((host, part))
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
        self._evicted_in_use = {one for one in self._evicted_in_use if one[0] != host}
