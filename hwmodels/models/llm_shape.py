"""The shape of a decoder-only language model, from which bytes and operation counts are computed."""

from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError
from hwmodels.models.experts import Experts, LatentAttention
from hwmodels.models.precision import Precision, uniform


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmShape:
    """A decoder with grouped-query attention; the defaults are a Llama's.

    ``bytes_per_parameter`` is also the width of activations; ``precision`` says how matrices and KV are
    stored (None: in the same width).
    ``qkv_bias``, ``output_bias`` (after attention) and ``mlp_bias`` add a bias to those matrices,
    ``norm_bias`` one to every norm (LayerNorm instead of RMSNorm). ``gated_mlp`` False: two matrices with the
    activation between them, as in OPT, instead of three. ``qk_norm``: queries and keys are normalised per
    head. ``position_rows`` is the height of a table of learned positions, 0 with rotary embedding.
    ``experts``: a mixture of experts replaces the MLP. ``latent``: attention over a
    latent; ``kv_heads`` then counts heads whose keys and values are computed from it, and ``head_dim`` is
    that of a query. ``top_p``: whether its publisher's generation_config.json has requests sample with top-p
    unless they say otherwise.
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
    experts: Experts | None = None
    latent: LatentAttention | None = None
    precision: Precision | None = None
    top_p: bool = False

    @property
    def formats(self) -> Precision:
        """How matrices and KV are stored."""
        return self.precision or uniform(self.bytes_per_parameter)

    @property
    def quantised(self) -> bool:
        """Whether matrices or KV have another width than the rest of the model."""
        return self.precision is not None and self.precision != uniform(self.bytes_per_parameter)

    @property
    def linear_parameters_per_layer(self) -> int:
        """Weights of the matrix products of a dense layer: Q, K, V, O, gate (if there is one), up, down."""
        return self._attention_parameters + (3 if self.gated_mlp else 2) * self.hidden * self.intermediate

    def parameters_of(self, layer: int) -> int:
        """Matrix weights, norms, the model's biases, and all experts unless the layer is a dense one."""
        norms = 2 * self._norm_parameters + (2 * self.head_dim if self.qk_norm else 0)
        norms += self.latent.norm_parameters if self.latent is not None else 0
        if self.experts is None or layer < self.experts.dense_layers:
            return self.linear_parameters_per_layer + self._biases_per_layer + norms
        routed, beside = self.experts.routed_parameters(self.hidden), self._beside_routed(self.experts)
        return self._attention_parameters + self._biases_per_layer + norms + beside + routed

    def routed_parameters_of(self, layer: int) -> int:
        """Weights of the routed experts of one layer."""
        if self.experts is None or layer < self.experts.dense_layers:
            return 0
        return self.experts.routed_parameters(self.hidden)

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embedding, and of the separate head if embeddings are not tied."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, the tied head counted once."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        positions = self.position_rows * self.hidden
        layers = sum(self.parameters_of(layer) for layer in range(self.layers))
        return layers + tables + positions + self.final_norm_parameters

    @property
    def final_norm_parameters(self) -> int:
        """Weights of the norm before the head."""
        return self._norm_parameters

    @property
    def active_parameters(self) -> int:
        """Weights that one token uses: all but the experts that its gates do not choose."""
        if self.experts is None:
            return self.parameters
        idle = self.experts.count - self.experts.per_token
        return self.parameters - self.moe_layers * idle * self.experts.parameters_of_one(self.hidden)

    @property
    def expert_bytes(self) -> int:
        """Bytes of all routed experts of all layers."""
        if self.experts is None:
            return 0
        formats = self.formats
        routed = self.experts.routed_parameters(self.hidden)
        return self.moe_layers * formats.format(formats.experts).size_bytes(routed)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights over all tensor-parallel ranks together."""
        layers = sum(self.layer_bytes(layer) for layer in range(self.layers))
        beside = self.parameters - sum(self.parameters_of(layer) for layer in range(self.layers))
        return layers + beside * self.bytes_per_parameter

    @property
    def attention_parameters_per_layer(self) -> int:
        """Weights of the matrix products of attention."""
        return self._attention_parameters

    @property
    def linear_bytes_per_layer(self) -> int:
        """Bytes of the matrices of a dense layer."""
        formats = self.formats
        attention = self._attention_parameters
        mlp = self.linear_parameters_per_layer - attention
        return formats.format(formats.attention).size_bytes(attention) + formats.format(
            formats.mlp
        ).size_bytes(mlp)

    def layer_bytes(self, layer: int, expert_parts: int = 1) -> int:
        """Bytes of one layer; of its routed experts one part in ``expert_parts``."""
        formats = self.formats
        routed = self.routed_parameters_of(layer)
        attention = self._attention_parameters
        dense = self.experts is None or layer < self.experts.dense_layers
        mlp = self.linear_parameters_per_layer - attention if dense else self._shared_parameters
        rest = self.parameters_of(layer) - attention - mlp - routed
        return (
            formats.format(formats.attention).size_bytes(attention)
            + formats.format(formats.mlp).size_bytes(mlp)
            + formats.format(formats.experts).size_bytes(-(-routed // expert_parts))
            + rest * self.bytes_per_parameter
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token, all layers, all ranks together.

        A latent is not split over heads: each rank keeps a copy, and this is one copy (``kv_copies``).
        """
        if self.latent is not None:
            values = self.layers * self.latent.kv_elements
        else:
            values = 2 * self.layers * self.kv_heads * self.head_dim
        return self.formats.format(self.formats.kv).size_bytes(values)

    def kv_copies(self, tp: int) -> int:
        """How many times ``tp`` ranks together hold the bytes of ``kv_bytes_per_token``."""
        return 1 if self.latent is None else tp

    def splits_into(self, tp: int) -> bool:
        """Whether query and KV heads, and the widths of experts, divide evenly over ``tp`` ranks."""
        if self.experts is not None and self.experts.width % max(tp, 1):
            return False
        return tp >= 1 and self.heads % tp == 0 and self.kv_heads % tp == 0

    def require_tp(self, tp: int) -> None:
        """Refuse a tensor-parallel size that would replicate or split heads."""
        if not self.splits_into(tp):
            sizes = ", ".join(str(size) for size in range(1, self.kv_heads + 1) if self.splits_into(size))
            raise HardwareError(
                f"tp={tp} does not divide the {self.heads} query and {self.kv_heads} KV heads "
                f"of {self.name}; write one of {sizes}"
            )

    def require_known_attention(self) -> None:
        """Refuse attention over a latent: no importer here reads a table of its times."""
        if self.latent is not None:
            raise HardwareError(
                f"{self.name} has multi-head latent attention, whose step times are not supported: only its "
                "sizes and memory are known"
            )

    def computes_like(self, other: "LlmShape") -> bool:
        """Whether operations take the same time: all but name, source, context and ``top_p`` is equal."""
        same = replace(
            other,
            name=self.name,
            source=self.source,
            max_context_tokens=self.max_context_tokens,
            top_p=self.top_p,
        )
        return self == same

    @property
    def _attention_parameters(self) -> int:
        if self.latent is not None:
            return self.latent.matrix_parameters(self.hidden, self.heads)
        return 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim

    def _beside_routed(self, experts: Experts) -> int:
        return experts.gate_parameters(self.hidden) + experts.shared_parameters(self.hidden)

    @property
    def _shared_parameters(self) -> int:
        return 0 if self.experts is None else self.experts.shared_parameters(self.hidden)

    @property
    def _norm_parameters(self) -> int:
        return 2 * self.hidden if self.norm_bias else self.hidden

    @property
    def _biases_per_layer(self) -> int:
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        into_intermediate = self.intermediate * (2 if self.gated_mlp else 1)
        mlp = into_intermediate + self.hidden if self.mlp_bias else 0
        return qkv + (self.hidden if self.output_bias else 0) + mlp
