"""Memory and CPU cores of the hosts: copies of stages, and what replicas have."""

from collections import Counter

from serving.elastic.stage_setup import StageScaling
from serving.parameters.kept_copies import KeptCopies


class HostResources:
    """``copies``: of stages, in the hosts' memory. ``lost``: hosts; ``lost_ssds``: SSDs."""

    __slots__ = ("_setup", "copies", "lost", "lost_ssds", "taken_cores")

    def __init__(self, setup: StageScaling) -> None:
        self._setup = setup
        self.copies = KeptCopies(setup.hosts.count, setup.hosts.memory_bytes, setup.sizes_bytes)
        self.taken_cores = Counter[int]()
        self.lost = set[int]()
        self.lost_ssds = set[int]()

    def free_cores(self, host: int) -> int:
        """That no replica has."""
        return self._setup.hosts.cpu_cores - self.taken_cores[host]

    @property
    def most_bytes(self) -> int:
        """That copies may use of a host's memory."""
        return int(self._setup.copies_share * self._setup.hosts.memory_bytes)

    def lose(self, host: int) -> None:
        """Its memory, its SSD and its GPUs are gone."""
        self.lost.add(host)
        self.copies.lose(host)
