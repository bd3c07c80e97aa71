"""Workers in one process, each with its arena; state moves between them as bytes, as transports bring it."""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any
from weakref import finalize

import torch

from realexec.memory.arena import Arena
from realexec.memory.device import MemoryApart
from realexec.memory.tensor_memory import ArenaMemory
from realexec.model.model_runner import ModelRunner
from realexec.worker.step_engine import StepEngine
from serving.vocabulary.layers import LayerRange

SIX_LAYERS = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
SEED = 3
BATCH_SIZE = 12


def prompt(request: int, tokens: int) -> tuple[int, ...]:
    draw = Random(f"prompt {request} {tokens}")
    return tuple(draw.randrange(SIX_LAYERS["vocab_size"]) for _ in range(tokens))


def memory_apart(arena: Arena) -> ArenaMemory:
    """As on a GPU: tensors lie in memory of the device, which transports do not see."""
    return ArenaMemory(arena, MemoryApart())


class InProcessWorker:
    """An arena, a runner and a step engine; ``tokens``: what each request was given here."""

    def __init__(
        self,
        model: Mapping[str, Any] = SIX_LAYERS,
        layers: tuple[int, int] | None = None,
        filled: bool = True,
        arena_bytes: int = 16 << 20,
        batch_size: int = BATCH_SIZE,
        memory_of: Callable[[Arena], ArenaMemory] = ArenaMemory,
    ) -> None:
        self.arena = Arena.create(arena_bytes)
        self.arena.buffer[:] = b"\xff" * arena_bytes  # NaN, to whoever reads what was never written
        memory = memory_of(self.arena)
        finalize(self, memory.close)  # a GPU's driver has the pages until then, and others may come there
        span = None if layers is None else LayerRange(*layers)
        self.runner = ModelRunner(
            model, SEED, batch_size, layers=span, memory=memory, filled=filled, state_memory=memory
        )
        self.engine = StepEngine(self.runner)
        self.tokens: dict[int, list[int]] = {}

    def step(
        self, *chunks: tuple[int, int, int], decode: bool = True, hand_over: bool = False
    ) -> tuple[int, ...]:
        return self._keep(self.engine.step(chunks, decode, hand_over))

    def run_layers(self, *args: Any, **options: Any) -> tuple[int, ...]:
        return self._keep(self.engine.run_layers(*args, **options))

    def _keep(self, result: tuple[dict[int, int], tuple[int, ...]]) -> tuple[int, ...]:
        sampled, finished = result
        for request, token in sampled.items():
            self.tokens.setdefault(request, []).append(token)
        return finished

    def pull_unit(self, unit: int, source: "InProcessWorker") -> None:
        """Parameters of one unit."""
        remote = source.runner.weights.segments(unit)
        for theirs, ours, size in self.runner.weights.copies(unit, remote):
            self.arena.buffer[ours : ours + size] = source.arena.buffer[theirs : theirs + size]
        self.runner.weights.came(unit)

    def pull_kv(
        self, request: int, source: "InProcessWorker", layers: tuple[int, int], positions: tuple[int, int]
    ) -> None:
        theirs = source.engine.held(request).kv
        assert theirs is not None
        ours = self.engine.room(self.engine.held(request))
        remote, local = theirs.publish(*layers, *positions), ours.ranges(*layers, *positions)
        for (far, size), (near, _) in zip(remote, local, strict=True):
            self.arena.buffer[near : near + size] = source.arena.buffer[far : far + size]
        ours.came(*layers, *positions)

    def pull_hidden(self, request: int, source: "InProcessWorker") -> None:
        theirs, ours = source.engine.held(request), self.engine.held(request)
        rows = source.engine.hidden_of(theirs)
        data = bytearray(rows.cpu().view(torch.uint8).numpy().tobytes())
        ours.hidden = torch.frombuffer(data, dtype=rows.dtype).view(rows.shape)
        ours.depth = theirs.depth

    def decode_to_the_end(self) -> None:
        while self.engine.has_residents():
            self.step()


def together(workers: Iterable[InProcessWorker]) -> dict[int, list[int]]:
    """The tokens of each request, in the order of the workers that it was on."""
    joined: dict[int, list[int]] = {}
    for worker in workers:
        for request, tokens in worker.tokens.items():
            joined.setdefault(request, []).extend(tokens)
    return joined
