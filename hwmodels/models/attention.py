"""Attention beyond grouped-query: over a latent, over chosen tokens, over a window, over a state."""

from dataclasses import dataclass
from typing import Final, Literal

LayerType = Literal["full", "sliding", "linear"]
"""What a layer attends to: the whole context, a window of it, or a state of fixed size."""
FULL: Final = "full"
SLIDING: Final = "sliding"
LINEAR: Final = "linear"
# vLLM keeps the indexer's keys in FP8 with one 32-bit scale for each head of 128 values
# (vllm/v1/attention/backends/mla/indexer.py).
_INDEX_SCALE_BYTES: Final = 4
# A latent stored in FP8 for sparse attention has a 32-bit scale for each 128 values, and its rotary key stays
# in 16 bits (FlashMLA's sparse kernels; vLLM calls it fp8_ds_mla).
_LATENT_GROUP: Final = 128
_LATENT_SCALE_BYTES: Final = 4
_ROTARY_BYTES: Final = 2
_CONVOLUTION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The indexer of sparse attention (DeepSeek-V3.2): ``heads`` small heads score all earlier tokens.

    Attention then reads the ``chosen`` tokens with the best scores.
    """

    heads: int
    head_dim: int
    chosen: int

    def matrix_parameters(self, hidden: int, query_rank: int) -> int:
        """Weights of its queries, its one key and the weights of its heads, in one layer."""
        return self.heads * self.head_dim * query_rank + hidden * (self.head_dim + self.heads)

    @property
    def norm_parameters(self) -> int:
        """Weights and biases of its key's norm."""
        return 2 * self.head_dim

    @property
    def cached_bytes(self) -> int:
        """Bytes of a token's key in one layer."""
        return self.head_dim + _INDEX_SCALE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): a token's KV is one latent of ``kv_rank`` and a rotary key.

    Sizes as in the publisher's config.json: ``nope`` and ``rope`` are the parts of a query head without and
    with rotary embedding, ``value`` the size of a value head; ``query_rank`` 0: queries have no latent.
    ``index``: attention reads only tokens that an indexer chose (None: all).
    """

    kv_rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0
    index: SparseIndex | None = None

    @property
    def kv_elements(self) -> int:
        """Cached elements of a token in one layer; every tensor-parallel rank keeps a copy."""
        return self.kv_rank + self.rope

    @property
    def packed_bytes(self) -> int:
        """Bytes of a token's latent in one layer as sparse attention stores it in FP8."""
        scales = -(-self.kv_rank // _LATENT_GROUP) * _LATENT_SCALE_BYTES
        return self.kv_rank + scales + self.rope * _ROTARY_BYTES

    def matrix_parameters(self, hidden: int, heads: int) -> int:
        """Weights of the matrix products of one layer."""
        query = heads * (self.nope + self.rope)
        queries = self.query_rank * (hidden + query) if self.query_rank else hidden * query
        keys_values = hidden * self.kv_elements + self.kv_rank * heads * (self.nope + self.value)
        return queries + keys_values + heads * self.value * hidden + self._indexer_parameters(hidden)

    def replicated_parameters(self, hidden: int) -> int:
        """Weights that every tensor-parallel rank reads whole: products into both latents, the indexer."""
        return hidden * (self.query_rank + self.kv_elements) + self._indexer_parameters(hidden)

    def _indexer_parameters(self, hidden: int) -> int:
        return 0 if self.index is None else self.index.matrix_parameters(hidden, self.query_rank)

    @property
    def norm_parameters(self) -> int:
        """Weights of the norms of the latents, and of the indexer's."""
        return self.kv_rank + self.query_rank + (self.index.norm_parameters if self.index is not None else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """A gated delta net (Qwen3-Next): each sequence has a state of fixed size instead of KV.

    ``key_heads`` of ``key_dim`` for queries and for keys, ``value_heads`` of ``value_dim``; queries, keys and
    values pass a convolution over ``conv_width`` tokens. ``state_bytes``: of one number of the rule's state;
    the convolution's stays in 16 bits (vLLM, model_executor/layers/mamba/mamba_utils.py).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int
    state_bytes: int = 2

    @property
    def channels(self) -> int:
        """Values per token that pass the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def matrix_parameters(self, hidden: int) -> int:
        """Weights of the products of one layer: into queries, keys, values, gates and rates; and out."""
        values = self.value_heads * self.value_dim
        return hidden * (self.channels + values + 2 * self.value_heads) + values * hidden

    @property
    def other_parameters(self) -> int:
        """Weights of the convolution, decay rates, time steps, and the norm of the output."""
        return self.channels * self.conv_width + 2 * self.value_heads + self.value_dim

    @property
    def rule_values(self) -> int:
        """Numbers of the rule's state of one sequence in one layer."""
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def sequence_bytes(self) -> int:
        """Bytes of one sequence in one layer: of the rule's state, and of the convolution's last tokens."""
        last = (self.conv_width - 1) * self.channels
        return self.rule_values * self.state_bytes + last * _CONVOLUTION_BYTES
