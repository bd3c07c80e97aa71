"""Settings of a model in stages that answers in one pass."""

from dataclasses import dataclass

from serving.services.stages.stage import NEVER_NS, StageQueues
from serving.vocabulary.layers import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSetup:
    """``parts``: the stages in order. ``activation_bytes``: size of a request's activations.

    ``batch``: the maximum number of requests in a pass. ``queues``: one per stage, or one per replica; in the
    second case the dispatcher chooses the replica when a request reaches the stage. ``cpu_cores``: number of
    CPU cores of a replica; 0: the world's default. ``elastic``: a stage may be without replicas. ``live``:
    replicas work while they load. ``timeout_ns``: of a request in all stages; 0: none. At stage k of n, both
    from 0, a request may wait for the rest of the stages (n - k) / n of it from when it reached the stage, as
    each stage of QUART's released code gives the next ones a time-out: (8 - k) x 1.25 s, 10 s in all.
    """

    parts: tuple[Part, ...]
    activation_bytes: int
    batch: int = 1
    queues: StageQueues = "stage"
    cpu_cores: int = 0
    elastic: bool = False
    live: bool = False
    timeout_ns: int = 0

    def until_ns(self, stage: int, now_ns: int) -> int:
        """When a request that reaches the stage now times out, by the limit of this stage."""
        stages = len(self.parts)
        return now_ns + self.timeout_ns * (stages - stage) // stages if self.timeout_ns else NEVER_NS
