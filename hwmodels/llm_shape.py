"""The shape of a decoder-only language model: everything bytes and operation counts follow from."""

from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError


@dataclass(frozen=True, slots=True)
class LlmShape:
    """A decoder with grouped-query attention; the defaults are a Llama's.

    ``bytes_per_parameter`` is also the width of activations and KV (no quantisation on this rung).
    ``qkv_bias``, ``output_bias`` (after attention) and ``mlp_bias`` add a bias to those matrices,
    ``norm_bias`` one to every norm (LayerNorm instead of RMSNorm). ``gated_mlp`` False: two matrices with the
    activation between them, as in OPT, instead of three. ``qk_norm``: queries and keys are normalised per
    head. ``position_rows`` is the height of a table of learned positions, 0 with rotary embedding.
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
    output_bias: bool = False
    mlp_bias: bool = False
    gated_mlp: bool = True
    norm_bias: bool = False
    qk_norm: bool = False
    position_rows: int = 0

    @property
    def linear_parameters_per_layer(self) -> int:
        """Weights of the matrix products of one layer: Q, K, V, O, gate (where there is one), up, down."""
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        return attention + (3 if self.gated_mlp else 2) * self.hidden * self.intermediate

    @property
    def parameters_per_layer(self) -> int:
        """Matrix weights, the norms, and the biases the model has."""
        norms = 2 * self._norm_parameters + (2 * self.head_dim if self.qk_norm else 0)
        return self.linear_parameters_per_layer + self._biases_per_layer + norms

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embedding, and of the head alone when embeddings are not tied."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, the tied head counted once."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        positions = self.position_rows * self.hidden
        return self.layers * self.parameters_per_layer + tables + positions + self._norm_parameters

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

    def computes_like(self, other: "LlmShape") -> bool:
        """Whether a step takes the same time: all is equal but name, source and the longest context."""
        same = replace(other, name=self.name, source=self.source, max_context_tokens=self.max_context_tokens)
        return self == same

    @property
    def _norm_parameters(self) -> int:
        return 2 * self.hidden if self.norm_bias else self.hidden

    @property
    def _biases_per_layer(self) -> int:
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        into_intermediate = self.intermediate * (2 if self.gated_mlp else 1)
        mlp = into_intermediate + self.hidden if self.mlp_bias else 0
        return qkv + (self.hidden if self.output_bias else 0) + mlp
