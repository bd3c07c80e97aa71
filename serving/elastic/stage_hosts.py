"""Memory and CPU cores of the hosts: copies of stages, and the cores that replicas use."""

from collections import Counter

from serving.elastic.stage_setup import StageScaling
from serving.parameters.kept_copies import KeptCopies


class HostResources:
    """``copies``: of stages, in the hosts' memory. ``lost``: lost hosts; ``lost_ssds``: lost SSDs."""

    __slots__ = ("_setup", "copies", "lost", "lost_ssds", "taken_cores")

    def __init__(self, setup: StageScaling) -> None:
        self._setup = setup
        self.copies = KeptCopies(setup.hosts.count, setup.hosts.memory_bytes, setup.sizes_bytes)
        self.taken_cores = Counter[int]()
        self.lost = set[int]()
        self.lost_ssds = set[int]()

    def free_cores(self, host: int) -> int:
        """Number of cores that no replica uses."""
        return self._setup.hosts.cpu_cores - self.taken_cores[host]

    @property
    def most_bytes(self) -> int:
        """How much of a host's memory copies may use."""
        return int(self._setup.copies_share * self._setup.hosts.memory_bytes)

    def lose(self, host: int) -> None:
        """Remove a lost host's memory, SSD and GPUs."""
        self.lost.add(host)
        self.copies.lose(host)
