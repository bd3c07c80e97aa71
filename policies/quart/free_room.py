"""Free resources of each host and GPU while one decision is put together."""

from collections import Counter

from serving.protocols.stages import PipelineView, StageHostView, StageView


class FreeRoom:
    """Free GPU memory, replicas on each GPU and free cores, less what this decision has already taken."""

    def __init__(self, view: PipelineView) -> None:
        self.hosts = view.hosts
        self._bytes = {gpu.id: gpu.free_bytes for host in view.hosts for gpu in host.gpus}
        self._replicas = {gpu.id: gpu.replicas for host in view.hosts for gpu in host.gpus}
        self.cores = {host.id: host.free_cores for host in view.hosts}
        self._default_cores = view.cores_per_replica
        states = [(replica.host, replica.state) for stage in view.stages for replica in stage.replicas]
        self.loads = Counter([host for host, state in states if state == "loading"])

    def gpu_for(self, host: StageHostView, stage: StageView) -> int | None:
        """The host's GPU for one more replica: the one with fewest replicas that has enough memory."""
        if self.cores[host.id] < self._default_cores:
            return None
        fit = [gpu.id for gpu in host.gpus if self._bytes[gpu.id] >= stage.gpu_bytes]
        return min(fit, key=lambda gpu: (self._replicas[gpu], gpu), default=None)

    def fits(self, host: StageHostView, stage: StageView) -> int:
        """How many more replicas of the stage the host's GPU memory and cores can hold."""
        if stage.gpu_bytes <= 0:
            return self.cores[host.id] // self._default_cores
        by_memory = sum(self._bytes[gpu.id] // stage.gpu_bytes for gpu in host.gpus)
        return min(by_memory, self.cores[host.id] // self._default_cores)

    def free_gpus(self, host: StageHostView) -> int:
        """GPUs of the host without replicas."""
        return sum(not self._replicas[gpu.id] for gpu in host.gpus)

    def is_free(self, gpu: int) -> bool:
        """Whether no replica uses the GPU."""
        return not self._replicas[gpu]

    def take(self, host: StageHostView, gpu: int, stage: StageView) -> None:
        """Take room for one more replica of the stage on this GPU."""
        self._bytes[gpu] -= stage.gpu_bytes
        self._replicas[gpu] += 1
        self.cores[host.id] -= self._default_cores
        self.loads[host.id] += 1


def greedy(
    room: FreeRoom,
    stage: StageView,
    count: int,
    hosts: tuple[StageHostView, ...],
    *,
    apart: bool,
    idle_only: bool = False,
) -> tuple[int, ...]:
    """GPUs of ``hosts`` for at most ``count`` replicas, one by one: free ones before shared ones.

    ``idle_only``: only GPUs without replicas.

    Hosts with fewest loads in progress come first, since loads share a host's SSD and its path to the GPUs.
    Then, with ``apart``, the host with most free GPUs, else the one with fewest. Ties go by id.
    """
    gpus: list[int] = []
    while len(gpus) < count:
        options = [
            (host, gpu)
            for host in hosts
            if (gpu := room.gpu_for(host, stage)) is not None and (room.is_free(gpu) or not idle_only)
        ]
        if not options:
            break
        host, gpu = min(
            options,
            key=lambda one: (
                not room.is_free(one[1]),
                room.loads[one[0].id],
                -room.free_gpus(one[0]) if apart else room.free_gpus(one[0]),
                one[0].id,
            ),
        )
        room.take(host, gpu, stage)
        gpus.append(gpu)
    return tuple(gpus)


def spread(room: FreeRoom, stage: StageView, count: int) -> tuple[int, ...]:
    """GPUs for at most ``count`` replicas, on the emptiest hosts, as Kubernetes places pods."""
    return greedy(room, stage, count, room.hosts, apart=True)
