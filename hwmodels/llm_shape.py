"""The shape of a decoder-only language model: everything bytes and operation counts follow from."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError


@dataclass(frozen=True, slots=True)
class LlmShape:
    """Llama-family decoder: RMSNorm, grouped-query attention, gated MLP.

    ``bytes_per_parameter`` is also the width of activations and KV (no quantisation on this rung).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    bytes_per_parameter: int
    max_context_tokens: int
    source: str
    qkv_bias: bool = False

    @property
    def linear_parameters_per_layer(self) -> int:
        """Weights of the matrix products of one layer: Q, K, V, O, gate, up, down."""
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        return attention + 3 * self.hidden * self.intermediate

    @property
    def parameters_per_layer(self) -> int:
        """Matrix weights, the two norms and the Q, K, V biases where the model has them."""
        bias = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        return self.linear_parameters_per_layer + 2 * self.hidden + bias

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embedding, and of the head alone when embeddings are not tied."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, the tied head counted once."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return self.layers * self.parameters_per_layer + tables + self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights over all tensor-parallel ranks together."""
        return self.parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token, all layers, all ranks together."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_parameter

    def splits_into(self, tp: int) -> bool:
        """Whether query and KV heads divide evenly over ``tp`` ranks."""
        return tp >= 1 and self.heads % tp == 0 and self.kv_heads % tp == 0

    def require_tp(self, tp: int) -> None:
        """Refuse a tensor-parallel size that would replicate or tear heads."""
        if not self.splits_into(tp):
            sizes = ", ".join(str(size) for size in range(1, self.kv_heads + 1) if self.splits_into(size))
            raise HardwareError(
                f"tp={tp} does not divide the {self.heads} query and {self.kv_heads} KV heads "
                f"of {self.name}; write one of {sizes}"
            )
