"""A pass over some layers of prompts that are not the engine's own: of a live pair, or a stage of a pipeline.

It waits for the run in progress to end at its next boundary, goes before anything else, and may run on an
engine that is still loading. The engine's queue and running set know nothing of it.
"""

from serving.vocabulary.actions import Chunk, Run


class LayerPass:
    """Layers [first, last) of whole prompts. ``inputs``, ``cpu_cores``: what comes first (``Run``)."""

    __slots__ = ("begun", "chunks", "cpu_cores", "inputs", "layers", "reason")

    def __init__(
        self,
        chunks: tuple[Chunk, ...],
        layers: tuple[int, int],
        reason: str,
        inputs: tuple[tuple[int, int], ...] = (),
        cpu_cores: int = 0,
    ) -> None:
        self.chunks = chunks
        self.layers = layers
        self.reason = reason
        self.inputs = inputs
        self.cpu_cores = cpu_cores
        self.begun = False

    def run(self, replica: int, epoch: int) -> Run:
        """What a replica is told: one step, whose requests decode elsewhere if at all."""
        how = False, 1, True, self.reason, True, self.layers, self.inputs, self.cpu_cores
        return Run(replica, epoch, self.chunks, *how)
