"""A replica: a group of GPUs that holds a contiguous layer range of one model."""

from dataclasses import dataclass
from typing import Final, Literal

from serving.vocabulary.layers import LayerRange, Part, part_of
from serving.vocabulary.request import Request

Role = Literal["prefill", "decode", "both"]
# How the reasons end for which a request is rejected because the context is too short for it.
BEYOND_CONTEXT: Final = "(max_model_len)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """Identity and size. ``kv_blocks`` of ``block_tokens`` tokens is the KV memory of the whole group.

    ``role``: ``prefill`` (computes prompts and hands them over), ``decode`` or ``both``. ``max_model_len``:
    the longest context in tokens that its engine allows a request; None: as much as fits its KV memory.
    ``kv_pools``: number of equal parts of the memory, of which a request uses one. ``swap_blocks``: blocks of
    host memory that a preempted request's KV can go to (0: it is dropped), at ``swap_block_ns`` per block.
    ``sequence_blocks``: blocks that a request holds besides those of its tokens, whatever their number: of
    windows and of the states of linear layers.
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
    max_model_len: int | None = None
    kv_pools: int = 1
    swap_blocks: int = 0
    swap_block_ns: int = 0
    sequence_blocks: int = 0

    def on(self, number: int, gpus: tuple[int, ...]) -> "Replica":
        """The same on these GPUs, with this number; ``dataclasses.replace`` takes ten times as long."""
        return Replica(
            id=number,
            model=self.model,
            layers=self.layers,
            gpus=gpus,
            kv_blocks=self.kv_blocks,
            block_tokens=self.block_tokens,
            watermark_blocks=self.watermark_blocks,
            prefix_caching=self.prefix_caching,
            role=self.role,
            max_model_len=self.max_model_len,
            kv_pools=self.kv_pools,
            swap_blocks=self.swap_blocks,
            swap_block_ns=self.swap_block_ns,
            sequence_blocks=self.sequence_blocks,
        )

    @property
    def part(self) -> Part:
        """The part that it is to hold; ``serving.parameters.residency`` has what is loaded so far."""
        return part_of(self.model, self.layers.first, self.layers.last)

    @property
    def room_tokens(self) -> int:
        """Tokens of the blocks of the part of the memory that a request uses, without the watermark."""
        pools = self.kv_pools
        return (self.kv_blocks // pools - self.watermark_blocks // pools) * self.block_tokens

    @property
    def sequence_tokens(self) -> int:
        """Tokens whose blocks would be as many as ``sequence_blocks``."""
        return self.sequence_blocks * self.block_tokens

    @property
    def longest_request_tokens(self) -> int:
        """Prompt + output that surely fit, so that a request preempted by recompute can always return."""
        return max(0, self.room_tokens - self.sequence_tokens)


def too_long(request: Request, kv_tokens: int, max_model_len: int | None) -> str | None:
    """Why a request exceeds what an instance holds; None: it fits. The context is checked first."""
    tokens = request.prompt_tokens + request.max_new_tokens
    if max_model_len is not None and tokens > max_model_len:
        if request.prompt_tokens >= max_model_len:
            return f"the prompt fills the context of {max_model_len} tokens {BEYOND_CONTEXT}"
        return f"prompt + max_new_tokens exceed the context of {max_model_len} tokens {BEYOND_CONTEXT}"
    if tokens > kv_tokens:
        if request.prompt_tokens >= kv_tokens:
            return f"the prompt fills the {kv_tokens} KV tokens of a replica"
        return f"prompt + max_new_tokens exceed the {kv_tokens} KV tokens of a replica"
    return None
