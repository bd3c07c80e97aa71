"""What a stage scaler sees of a pipeline, stage by stage, and what it may decide.

A stage is a part of a model, layers [first, last), with its own replicas and queue; a request passes the
stages in order. Stages of several models may share the hosts and their GPUs.
"""

from typing import Literal, Protocol

from serving.protocols.scaling import InstanceState
from serving.vocabulary.fact import fact


@fact
class StageReplicaView:
    """One replica of a stage, on one GPU of a host.

    ``outstanding``: requests that it runs, or runs next. ``cpu_cores``: its CPU cores. ``most``: at most this
    many requests in its next pass.
    """

    id: int
    host: int
    state: InstanceState
    outstanding: int = 0
    cpu_cores: int = 1
    most: int = 1


@fact
class StageView:
    """One stage. Rates, times and CVs are those of the view's window.

    ``index``: its place in the pipeline. ``replicas``: by id, including those that load or drain.
    ``minimum``, ``maximum``: bounds on the number that serve or load. ``arrival_per_s``: arrivals.
    ``arrival_cv``: standard deviation over mean of the gaps between arrivals. ``queued``: requests that no
    replica runs yet, now. ``service_s``, ``service_cv``: mean and CV of a pass. ``batch``: mean number of
    requests in a pass. ``delay_s``: from arrival at the stage to the end of the pass, mean; None: none ended.
    ``passed``: requests whose pass ended. ``exec_s``: a pass of one request alone, at ``exec_cores`` CPU
    cores. ``exec_cores``: those cores. ``is_key``: whether it is a key stage. ``bytes``: its parameters.
    ``seat_bytes``: the GPU memory of a replica with its KV; 0: only the parameters. ``layers``: [first, last)
    of the model.

    A language model's requests wait for all stages at once: ``queued`` is the same for all, ``delay_s`` is
    not measured, and a pass is all that a replica computes for a request.
    """

    index: int
    replicas: tuple[StageReplicaView, ...]
    minimum: int
    maximum: int
    arrival_per_s: float
    arrival_cv: float
    queued: int
    service_s: float
    service_cv: float
    delay_s: float | None
    exec_s: float
    bytes: int
    batch: float = 1.0
    exec_cores: int = 1
    is_key: bool = False
    seat_bytes: int = 0
    layers: tuple[int, int] = (0, 0)
    passed: int = 0

    @property
    def gpu_bytes(self) -> int:
        """GPU memory that a replica takes."""
        return self.seat_bytes or self.bytes

    @property
    def supply(self) -> int:
        """Replicas that serve or will: a loading replica counts, a draining one does not."""
        return sum(replica.state != "draining" for replica in self.replicas)

    @property
    def serving(self) -> int:
        """Replicas that take requests now."""
        return sum(replica.state == "serving" for replica in self.replicas)

    @property
    def replica_per_s(self) -> float:
        """Requests that one replica completes per second while it has work."""
        return self.batch / self.service_s


@fact
class StageGpuView:
    """One GPU.

    ``free_bytes``: its free memory. ``replicas``: how many of any stage it has.
    """

    id: int
    free_bytes: int
    replicas: int = 0


@fact
class HostCopyView:
    """The parameters of a stage in a host's memory.

    ``bytes``: their size. ``used_ns``: when last loaded from, or put there. ``in_use``: a load reads the copy
    now; evicted, its bytes become free when that load has ended.
    """

    model: str
    stage: int
    bytes: int
    used_ns: int
    in_use: bool = False


@fact
class StageHostView:
    """A host.

    ``gpus``: its GPUs. ``free_cores``: CPU cores that no replica has. ``memory_bytes``: its memory.
    ``used_bytes``: bytes of it in use, the copies included. ``copies``: parameters in its memory.
    """

    id: int
    gpus: tuple[StageGpuView, ...]
    free_cores: int
    memory_bytes: int
    used_bytes: int
    copies: tuple[HostCopyView, ...] = ()

    def has_copy(self, model: str, stage: int) -> bool:
        """Whether the parameters of this stage are in the host's memory."""
        return any(copy.model == model and copy.stage == stage for copy in self.copies)

    @property
    def free_gpus(self) -> int:
        """GPUs that no replica uses."""
        return sum(not gpu.replicas for gpu in self.gpus)


@fact
class CutView:
    """A model that may be re-cut while it runs.

    ``layers``: how many it has. ``most_layers``: how many fit on a GPU with KV. ``coming``: the layers at
    which the stages of the next cut begin; empty: no new cut is under way.
    """

    layers: int
    most_layers: int
    coming: tuple[int, ...] = ()


@fact
class PipelineView:
    """The pipeline of one model, and the hosts that it may use.

    ``stages``: in order. ``hosts``: by id. ``window_s``: the time over which rates and CVs are counted.
    ``slo_s``: the time a request may take through all stages; 0: no objective. ``max_replicas``: bound for
    all its stages together. ``cores_per_replica``: CPU cores of a new replica. ``batch``: at most this many
    requests in a pass. ``batch_cost``: the share that each request but the longest adds to a pass.
    ``cores_count``: whether a pass is faster with more CPU cores. ``cut``: None: its stages never change.
    """

    now_ns: int
    model: str
    stages: tuple[StageView, ...]
    hosts: tuple[StageHostView, ...]
    window_s: float
    slo_s: float
    max_replicas: int
    cores_per_replica: int = 1
    batch: int = 1
    batch_cost: float = 1.0
    cores_count: bool = True
    cut: CutView | None = None

    @property
    def supply(self) -> int:
        """Replicas of all stages that serve or will."""
        return sum([stage.supply for stage in self.stages])

    def hosts_with(self, stage: int) -> tuple[int, ...]:
        """Hosts whose memory has a copy of the stage."""
        return tuple([host.id for host in self.hosts if host.has_copy(self.model, stage)])


@fact
class StartReplicas:
    """Start new replicas of a stage.

    ``count``: how many. ``gpus``: one per replica; empty: placement chooses. ``source``: ``host`` (memory of
    the replica's own host), ``ssd`` or ``any``: the nearest. ``cpu_cores``: per replica; 0: the default.
    """

    stage: int
    count: int
    reason: str
    gpus: tuple[int, ...] = ()
    source: Literal["any", "host", "ssd"] = "any"
    cpu_cores: int = 0


@fact
class StopReplicas:
    """Drain replicas and remove them when they are empty; a loading replica's load is aborted.

    ``replicas``: their ids.
    """

    stage: int
    replicas: tuple[int, ...]
    reason: str


@fact
class SetCores:
    """From now on replicas have this many CPU cores of their host.

    ``replicas``: their ids. ``cpu_cores``: of each.
    """

    stage: int
    replicas: tuple[int, ...]
    cpu_cores: int
    reason: str


@fact
class SetBatch:
    """From its next pass on, a replica takes at most this many requests per pass.

    ``replicas``: their ids. ``most``: requests.
    """

    stage: int
    replicas: tuple[int, ...]
    most: int
    reason: str


@fact
class KeepCopy:
    """Keep the stage's parameters in the host's memory; the host has or gets a replica of the stage.

    They count once, however many replicas of the stage the host has (copy-on-write), and outlive them.
    """

    stage: int
    host: int
    reason: str


@fact
class EvictCopy:
    """Remove the host's copy of a stage, of any model."""

    model: str
    stage: int
    host: int
    reason: str


@fact
class MarkKeyStages:
    """From now on exactly these are the key stages.

    ``stages``: their indices.
    """

    stages: tuple[int, ...]
    reason: str


@fact
class CutAnew:
    """From now on the stages of the model begin at other layers.

    ``begins``: these layers, the first 0. ``replicas``: new replicas of each stage. ``gpus``: their GPUs, for
    all new stages in order; empty: placement chooses.
    """

    # The new replicas load beside the existing ones; stages that are in both cuts stay as they are. When all
    # have loaded, requests move there with their KV, and the stages that have gone release their GPUs.
    begins: tuple[int, ...]
    replicas: tuple[int, ...]
    reason: str
    gpus: tuple[int, ...] = ()


StageDecision = (
    StartReplicas | StopReplicas | SetCores | SetBatch | KeepCopy | EvictCopy | MarkKeyStages | CutAnew
)


class StageScaler(Protocol):
    """Decides how many replicas each stage of a pipeline has, and on which GPUs.

    It may have ``memory_s``: for at most this many seconds a view can influence later answers.
    """

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Asked once per period: the changes to make now, in this order."""
