"""What a serving engine adds to the operations of a step: scheduling, sampling, launches, padded batches."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_time import Interplay, Piece, StepLimits, StepModel

MAX_GRAPH_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class EngineOverhead:
    """``step_s`` and ``per_sequence_s`` are added to every step.

    ``graph_batches`` are the batch sizes captured as CUDA graphs, ascending: a step with up to the largest of
    them runs as the next captured size, idle rows included. ``source`` says where the numbers come from.
    """

    step_s: float = 0.0
    per_sequence_s: float = 0.0
    graph_batches: tuple[int, ...] = ()
    source: str = "none declared"

    def __post_init__(self) -> None:
        for name in ("step_s", "per_sequence_s"):
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise HardwareError(f"{name}={value} is not a time; write 0 or a positive number of seconds")
        if (
            list(self.graph_batches) != sorted(set(self.graph_batches))
            or min(self.graph_batches, default=1) < 1
        ):
            raise HardwareError(
                f"graph batches {self.graph_batches} must be increasing numbers of at least 1"
            )

    def padded(self, tokens: int) -> int:
        """Rows the GPU computes for a step of ``tokens``."""
        batches = self.graph_batches
        position = bisect_left(batches, tokens)
        return batches[position] if position < len(batches) else tokens


def vllm_graph_batches(largest: int) -> tuple[int, ...]:
    """Batch sizes vLLM captures up to ``largest``, 512 at most (vLLM 0.19, _set_cudagraph_sizes)."""
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, MAX_GRAPH_BATCH + 1, 16))
    return tuple(size for size in sizes if size <= largest)


@dataclass(frozen=True, slots=True)
class EngineStepModel:
    """A step model's operations as one engine runs them; the protocol is StepModel's."""

    operations: StepModel
    overhead: EngineOverhead

    @property
    def limits(self) -> StepLimits:
        """The operations' range; padding is cut where they end."""
        return self.operations.limits

    @property
    def source(self) -> str:
        """Where the operations' times come from."""
        return self.operations.source

    @property
    def error_band(self) -> str:
        """How far off the operations' times may be."""
        return self.operations.error_band

    @property
    def interplay(self) -> Interplay | None:
        """The operations'."""
        return self.operations.interplay

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """Idle rows pad the tokens of a step; the head samples for the real sequences only."""
        overhead = self.overhead
        tokens = prefill_tokens + decode_sequences
        idle = overhead.padded(tokens) - tokens
        if prefill_tokens:
            prefill_tokens = min(prefill_tokens + idle, self.limits.max_prefill_tokens)
            padded = self.operations.dense_s(prefill_tokens, prefill_sequences, decode_sequences)
        else:
            rows = min(decode_sequences + idle, self.limits.max_decode_sequences)
            padded = self.operations.dense_s(0, 0, rows)
        return padded + overhead.step_s + overhead.per_sequence_s * (prefill_sequences + decode_sequences)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """The operations': idle rows have no context."""
        return self.operations.decode_attention(decode_sequences)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The operations'."""
        return self.operations.prefill_attention_s(new_tokens, cached_tokens)
