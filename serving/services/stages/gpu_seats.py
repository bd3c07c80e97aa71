"""GPUs that replicas of several stages share: memory in use and passes wanted per GPU."""

from collections import Counter
from collections.abc import Iterable, Mapping

from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica


class GpuSeats:
    """GPU use of all pipelines.

    ``capacity_bytes``: memory of one GPU. ``sizes_bytes``: for each part, the memory of one of its replicas.
    The world runs one pass at a time on a GPU; this class counts the replicas that want to run one.
    """

    __slots__ = ("_capacity_bytes", "_gpu_of", "_passes", "_sizes_bytes", "used_bytes")

    def __init__(self, capacity_bytes: int, sizes_bytes: Mapping[Part, int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._sizes_bytes = dict(sizes_bytes)
        self._gpu_of: dict[int, int] = {}
        self._passes = Counter[int]()
        self.used_bytes = Counter[int]()

    def free_bytes(self, gpu: int) -> int:
        """Bytes left for more replicas on the GPU."""
        return self._capacity_bytes - self.used_bytes[gpu]

    def bytes_of(self, part: Part) -> int:
        """Bytes of its GPU that a replica of the part takes."""
        return self._sizes_bytes[part]

    def replicas_on(self, gpu: int) -> list[int]:
        """The replicas on the GPU now, by id."""
        return sorted([replica for replica, other in self._gpu_of.items() if other == gpu])

    def enter(self, replica: Replica) -> None:
        """Place a replica on its GPU."""
        (gpu,) = replica.gpus
        size_bytes = self._sizes_bytes[replica.part]
        assert size_bytes <= self.free_bytes(gpu), (
            f"replica {replica.id} needs {size_bytes} bytes on GPU {gpu}, which has {self.free_bytes(gpu)}"
        )
        self._gpu_of[replica.id] = gpu
        self.used_bytes[gpu] += size_bytes

    def leave(self, replica: Replica) -> None:
        """Remove a replica from its GPU."""
        gpu = self._gpu_of.pop(replica.id)
        self.used_bytes[gpu] -= self._sizes_bytes[replica.part]

    def begin(self, replica: int) -> None:
        """Count a pass that a replica is to run."""
        self._passes[self._gpu_of[replica]] += 1

    def end(self, replica: int) -> None:
        """The replica's pass has run, or is cancelled."""
        self._passes[self._gpu_of[replica]] -= 1

    def best(self, replicas: Iterable[int]) -> int:
        """The replica with the fewest passes on its GPU, the lowest id among equals."""
        return min(replicas, key=lambda replica: (self._passes[self._gpu_of[replica]], replica))
