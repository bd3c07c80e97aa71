"""A pass over some layers of prompts outside the engine's queue: of a live pair or a pipeline's stage.

It waits for the current run to end at its next boundary, then runs before anything else. It may run on an
engine that is still loading. The engine's queue and running set do not contain its requests.
"""

from serving.vocabulary.actions import Chunk, Run


class LayerPass:
    """Layers [first, last) of whole prompts. ``inputs``, ``cpu_cores``: needed before it begins (``Run``)."""

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
        """The action for the replica: one step, whose requests decode elsewhere if at all."""
        return Run(
            replica,
            epoch,
            self.chunks,
            decode=False,
            max_steps=1,
            until_finish=True,
            reason=self.reason,
            hand_over=True,
            layers=self.layers,
            inputs=self.inputs,
            cpu_cores=self.cpu_cores,
        )
