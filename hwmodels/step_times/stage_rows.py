"""Step times of a model cut into pipeline stages, from those of the whole model and of the hops.

Every layer takes the same part of a step, and the parts add up to the whole to the last unit. Only the last
stage runs the head. Its share of a step follows from its weights and those of all layers, by the roofline of
the GPU. An engine's overhead per step is spread as the layers are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.stage_cuts import Cut
from hwmodels.step_times.rows import FIXED_PER_S, Row

SHARE_BITS: Final = 20
_ONE: Final = 1 << SHARE_BITS
# vLLM 0.19 sends two tensors of a token to the next stage, hidden states and residual (models/llama.py).
TENSORS_SENT: Final = 2
StageRow = tuple[int, tuple[int, ...], tuple[int, ...]]


class WholeRows(Protocol):
    """Step times of the whole model (``rows.StepRows``)."""

    def decode(self, n: int) -> tuple[Row, ...]: ...

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0) -> int: ...

    @property
    def skewed(self) -> bool: ...

    @property
    def output_token(self) -> int: ...

    def shift(self, n: int, spread: int, prefill_tokens: int = 0) -> int: ...


@dataclass(frozen=True, slots=True)
class StageHop:
    """The transfer of activations from a stage to the next: its latency, and the time per token."""

    latency_s: float
    token_s: float


@dataclass(frozen=True, slots=True)
class HeadShare:
    """The head's share of a step. ``head``, ``layers``: weights; ``ridge``: rows that take as long as one.

    A product of fewer rows takes as long as reading its weights.
    """

    head: int
    layers: int
    ridge: float

    def of(self, tokens: int, sequences: int) -> int:
        """Share of a step with these tokens and sequences, in 2^-20: a sequence has one row at the head."""
        head = self.head * max(float(sequences), self.ridge)
        layers = self.layers * max(float(tokens), self.ridge)
        return int(_ONE * head / (head + layers))


def head_share(gpu: Gpu, shape: LlmShape) -> HeadShare:
    """Compute it from the weights a step reads, and from what the GPU computes while it reads one."""
    layers = shape.active_parameters - shape.embedding_parameters * (1 if shape.tied_embeddings else 2)
    ridge = gpu.flops_per_s * shape.bytes_per_parameter / (2.0 * gpu.memory_bandwidth_bytes_per_s)
    return HeadShare(shape.embedding_parameters, layers, ridge)


def activation_bytes(shape: LlmShape) -> int:
    """Bytes per token from a stage to the next."""
    return TENSORS_SENT * shape.hidden * shape.bytes_per_parameter


class StageRows:
    """Integer step costs of every stage; a linear piece of the whole has a part in each stage."""

    __slots__ = ("_decode", "_ends", "_head", "_hops", "_layers", "_rows", "_starts", "stages")

    def __init__(self, rows: WholeRows, cut: Cut, head: HeadShare, hops: Sequence[StageHop]) -> None:
        """``hops``: between consecutive stages."""
        assert len(hops) == len(cut) - 1
        self._rows = rows
        self._head = head
        self._starts = [part.start for part in cut]
        self._ends = [part.stop for part in cut]
        self._layers = cut[-1].stop
        self._hops = [(round(hop.latency_s * FIXED_PER_S), round(hop.token_s * FIXED_PER_S)) for hop in hops]
        self.stages = len(cut)
        self._decode: dict[int, tuple[StageRow, ...]] = {}

    def decode(self, n: int) -> tuple[StageRow, ...]:
        """Pieces (context limit, intercepts, slopes) of a decode step of ``n`` sequences."""
        pieces = self._decode.get(n)
        if pieces is None:
            share = self._head.of(n, n)
            pieces = tuple(
                [
                    (limit, self._cut(cost, max(0, cost) * share >> SHARE_BITS), self._cut(slope, 0))
                    for limit, cost, slope in self._rows.decode(n)
                ]
            )
            self._decode[n] = pieces
        return pieces

    def mixed(
        self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0
    ) -> tuple[int, ...]:
        """A step with ``chunks`` and ``n`` decoding sequences."""
        whole = self._rows.mixed(n, context, chunks, spread)
        tokens = n + sum([chunk[2] for chunk in chunks])
        return self._cut(whole, whole * self._head.of(tokens, n + len(chunks)) >> SHARE_BITS)

    def hops(self, tokens: int) -> tuple[int, ...]:
        """Transfer time of the activations of ``tokens`` tokens to each stage; 0 to the first."""
        return (0, *[latency + tokens * each for latency, each in self._hops])

    @property
    def skewed(self) -> bool:
        """As in the whole model."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """As in the whole model."""
        return self._rows.output_token

    def shift(self, n: int, spread: int) -> int:
        """As in the whole model: these are tokens."""
        return self._rows.shift(n, spread)

    def _cut(self, whole: int, head: int) -> tuple[int, ...]:
        layers, rest = self._layers, whole - head
        parts = [
            rest * end // layers - rest * start // layers for start, end in zip(self._starts, self._ends)
        ]
        parts[-1] += head
        return tuple(parts)
