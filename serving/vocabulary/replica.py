"""A replica: a group of GPUs that holds a contiguous layer range of one model."""

from dataclasses import dataclass
from typing import Literal

from serving.vocabulary.layers import LayerRange, Part, part_of

Role = Literal["prefill", "decode", "both"]


@dataclass(frozen=True, slots=True)
class Replica:
    """Identity and extent. ``kv_blocks`` of ``block_tokens`` tokens is the KV memory of the whole group.

    ``role``: ``prefill`` (prompts, handed over when computed), ``decode`` or ``both``.
    """

    id: int
    model: str
    layers: LayerRange
    gpus: tuple[int, ...]
    kv_blocks: int
    block_tokens: int = 16
    watermark_blocks: int = 0
    prefix_caching: bool = False
    role: Role = "both"

    @property
    def part(self) -> Part:
        """What of a model it is to hold; ``serving.parameters.residency`` says how far that has come."""
        return part_of(self.model, self.layers.first, self.layers.last)

    @property
    def longest_request_tokens(self) -> int:
        """Prompt + output that surely fit, so that preemption by recompute can always come back."""
        return (self.kv_blocks - self.watermark_blocks) * self.block_tokens
