"""What a stage scaler sees of a pipeline, stage by stage, and what it may decide.

A stage is a part of a model, layers [first, last), with replicas and a queue of its own; a request passes the
stages in order. Stages of several models may share the hosts, and their GPUs.
"""

from typing import Literal, Protocol

from serving.protocols.scaling import InstanceState
from serving.vocabulary.fact import fact


@fact
class StageReplicaView:
    """One replica of a stage, on one GPU of a host.

    ``outstanding``: requests that it runs, or will next. ``most``: requests of its next pass at most.
    """

    id: int
    host: int
    state: InstanceState
    outstanding: int = 0
    cpu_cores: int = 1
    most: int = 1


@fact
class StageView:
    """One stage. Rates, times and CVs are those of the view's window; the queue is that of now.

    ``replicas``: by id, also those that load or drain. ``minimum``, ``maximum``: bounds on how many serve or
    load. ``arrival_cv``: standard deviation over mean of the gaps between arrivals. ``queued``:
    requests that no replica runs yet. ``service_s``, ``service_cv``: of a pass, mean and CV; ``batch``: the
    mean number of requests in one. ``delay_s``: from arrival at the stage to the end of its pass, mean of
    those that ended, ``passed``; None: none did. ``exec_s``: a pass of one request alone, with no wait, at
    ``exec_cores`` CPU cores. ``bytes``: its parameters, as a copy in host memory and, where they alone are
    there, on a GPU; ``seat_bytes``: what a replica takes of its GPU with its KV, 0: no more than those.
    ``layers``: [first, last) of the model. A language model's requests wait for all stages at once:
    ``queued`` is the same of all, nobody measures ``delay_s``, and a "pass" is all that a replica computes
    for a request, prompt and tokens.
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
        """What a replica takes of its GPU."""
        return self.seat_bytes or self.bytes

    @property
    def supply(self) -> int:
        """Replicas that serve or will: one that loads counts, one that drains does not."""
        return sum(one.state != "draining" for one in self.replicas)

    @property
    def serving(self) -> int:
        """Replicas that take requests now."""
        return sum(one.state == "serving" for one in self.replicas)

    @property
    def replica_per_s(self) -> float:
        """Requests that one replica completes per second while it has work."""
        return self.batch / self.service_s


@fact
class StageGpuView:
    """One GPU, which replicas of several stages may share up to its memory."""

    id: int
    free_bytes: int
    replicas: int = 0


@fact
class HostCopyView:
    """The parameters of a stage in a host's memory. ``used_ns``: last loaded from, or put there.

    ``in_use``: a load reads it now: evicted, its bytes are free when that has ended.
    """

    model: str
    stage: int
    bytes: int
    used_ns: int
    in_use: bool = False


@fact
class StageHostView:
    """A server: its GPUs, CPU cores that no replica has, memory, and the copies that it keeps there.

    ``used_bytes``: of ``memory_bytes``, whatever takes them; the copies are among them.
    """

    id: int
    gpus: tuple[StageGpuView, ...]
    free_cores: int
    memory_bytes: int
    used_bytes: int
    copies: tuple[HostCopyView, ...] = ()

    def has_copy(self, model: str, stage: int) -> bool:
        """Whether the parameters of this stage are in the host's memory."""
        return any(one.model == model and one.stage == stage for one in self.copies)

    @property
    def free_gpus(self) -> int:
        """GPUs that no replica uses."""
        return sum(not gpu.replicas for gpu in self.gpus)


@fact
class CutView:
    """Of a model that may be cut anew while it runs: its ``layers``, how many of them a GPU holds with KV.

    ``coming``: where the stages of the cut that comes begin; empty: none comes.
    """

    layers: int
    most_layers: int
    coming: tuple[int, ...] = ()


@fact
class PipelineView:
    """The pipeline of one model at one instant, and the hosts that it may use.

    ``window_s``: over how long rates and CVs are counted. ``slo_s``: what a request may take through all
    stages; 0: nothing is promised. ``max_replicas``: of all its stages together. ``cores_per_replica``: what
    the service gives a new replica unless told otherwise. ``batch``: requests of a pass at most, of whichever
    replica; of each but the longest a pass takes the share ``batch_cost``. ``cores_count``: whether a pass is
    faster with more CPU cores. ``cut``: None: its stages stay as they are.
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
    """``count`` new replicas of a stage.

    ``gpus``: one for each; empty: placement chooses. ``source``: ``host`` (memory of the replica's own host),
    ``ssd`` or ``any``: the nearest that has the parameters. ``cpu_cores``: of each; 0: the service's own.
    """

    stage: int
    count: int
    reason: str
    gpus: tuple[int, ...] = ()
    source: Literal["any", "host", "ssd"] = "any"
    cpu_cores: int = 0


@fact
class StopReplicas:
    """These replicas take nothing new, and go when they are empty; of one that loads the load is given up."""

    stage: int
    replicas: tuple[int, ...]
    reason: str


@fact
class SetCores:
    """From now on each of these replicas has so many CPU cores of its host."""

    stage: int
    replicas: tuple[int, ...]
    cpu_cores: int
    reason: str


@fact
class SetBatch:
    """From its next pass on each of these replicas takes so many requests at most."""

    stage: int
    replicas: tuple[int, ...]
    most: int
    reason: str


@fact
class KeepCopy:
    """The parameters of the stage stay in the host's memory from now on; a replica of it is there, or comes.

    They count once, however many replicas of the stage the host has (copy-on-write), and stay when those go.
    """

    stage: int
    host: int
    reason: str


@fact
class EvictCopy:
    """The host forgets its copy of a stage, of any model."""

    model: str
    stage: int
    host: int
    reason: str


@fact
class MarkKeyStages:
    """From now on these are the key stages of the pipeline, and no others."""

    stages: tuple[int, ...]
    reason: str


@fact
class CutAnew:
    """From now on the stages of the model begin at these layers, the first one at 0.

    Their ``replicas`` load beside those that are there; stages that both cuts have stay as they are. When all
    have loaded, requests move there with their KV, and the stages that are no more give their GPUs back.
    ``gpus``: of the new replicas of all new stages in order; empty: placement chooses.
    """

    begins: tuple[int, ...]
    replicas: tuple[int, ...]
    reason: str
    gpus: tuple[int, ...] = ()


StageDecision = (
    StartReplicas | StopReplicas | SetCores | SetBatch | KeepCopy | EvictCopy | MarkKeyStages | CutAnew
)


class StageScaler(Protocol):
    """Decides how many replicas each stage of a pipeline has, and where; once per period.

    It may have a ``memory_s``: for how many seconds at most a view can change its answers to later ones,
    waits between its own decisions included. A run in which nothing comes any more ends so much sooner.
    """

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """What to change now, in the order in which to do it; empty: nothing."""
