"""Settings of a model in stages that answers in one pass."""

from dataclasses import dataclass

from serving.services.stages.stage import StageQueues
from serving.vocabulary.layers import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSetup:
    """``parts``: the stages in order. ``activation_bytes``: size of a request's activations.

    ``batch``: the maximum number of requests in a pass. ``queues``: one per stage, or one per replica; in the
    second case the dispatcher chooses the replica when a request reaches the stage. ``cpu_cores``: number of
    CPU cores of a replica; 0: the world's default. ``elastic``: a stage may be without replicas. ``live``:
    replicas work while they load.
    """

    parts: tuple[Part, ...]
    activation_bytes: int
    batch: int = 1
    queues: StageQueues = "stage"
    cpu_cores: int = 0
    elastic: bool = False
    live: bool = False
