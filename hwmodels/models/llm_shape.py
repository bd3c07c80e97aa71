"""The shape of a decoder-only language model, from which bytes and operation counts are computed."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.attention import FULL, LINEAR, SLIDING, LatentAttention, LayerType, LinearAttention
from hwmodels.models.experts import Experts
from hwmodels.models.precision import Precision, uniform

# A window of more tokens than this is counted like the whole context: few sequences are longer, so a window
# kept for every sequence would be far more than they hold (Llama-4's chunks of 8,192 tokens).
LONGEST_BOUNDING_WINDOW: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmShape:
    """A decoder with grouped-query attention; the defaults are a Llama's.

    ``bytes_per_parameter`` is also the width of activations; ``precision`` says how matrices and KV are
    stored (None: in the same width).
    ``qkv_bias``, ``output_bias`` (after attention) and ``mlp_bias`` add a bias to those matrices,
    ``norm_bias`` one to every norm (LayerNorm instead of RMSNorm). ``gated_mlp`` False: two matrices with the
    activation between them, as in OPT, instead of three. ``qk_norm``: queries and keys are normalised, per
    head or, with ``wide_qk_norm``, over all heads together. ``norms``: of the hidden state, per layer.
    ``output_gate``: a gate as wide as the queries weighs the output of full attention. ``sinks``: every query
    head has a learned score that belongs to no token. ``position_rows`` is the height of a table of learned
    positions, 0 with rotary embedding.
    ``experts``: a mixture of experts replaces the MLP. ``latent``: attention over a
    latent; ``kv_heads`` then counts heads whose keys and values are computed from it, and ``head_dim`` is
    that of a query. ``layer_types``: what each layer attends to (empty: the whole context, in every layer);
    ``window_tokens`` of ``sliding`` layers, ``linear``: of the others. ``predictors``: further layers that
    predict further tokens, in the checkpoint and not part of a step; ``predictor_tables``: each with an
    embedding and a head of its own. ``top_p``: whether its publisher's generation_config.json has requests
    sample with top-p unless they say otherwise.
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
    wide_qk_norm: bool = False
    norms: int = 2
    output_gate: bool = False
    sinks: bool = False
    layer_types: tuple[LayerType, ...] = ()
    window_tokens: int = 0
    linear: LinearAttention | None = None
    predictors: int = 0
    predictor_tables: bool = True
    top_p: bool = False

    def __post_init__(self) -> None:
        kinds = set(self.layer_types)
        if self.layer_types and len(self.layer_types) != self.layers:
            raise HardwareError(
                f"{self.name} has {len(self.layer_types)} layer_types: write one for each of {self.layers}"
            )
        if not kinds <= {FULL, SLIDING, LINEAR}:
            raise HardwareError(
                f"unknown layer type in {self.name}: write {FULL}, {SLIDING} or {LINEAR} for each layer"
            )
        if SLIDING in kinds and self.window_tokens < 1:
            raise HardwareError(f"{self.name} has sliding layers: write window_tokens")
        if LINEAR in kinds and self.linear is None:
            raise HardwareError(f"{self.name} has linear layers: write linear, the sizes of their attention")

    @property
    def formats(self) -> Precision:
        """How matrices and KV are stored."""
        return self.precision or uniform(self.bytes_per_parameter)

    @property
    def quantised(self) -> bool:
        """Whether matrices or KV have another width than the rest of the model."""
        return self.precision is not None and self.precision != uniform(self.bytes_per_parameter)

    def layer_type(self, layer: int) -> LayerType:
        """What a layer attends to."""
        return self.layer_types[layer] if self.layer_types else FULL

    def layers_of(self, kind: LayerType) -> int:
        """Number of layers that attend to ``kind``."""
        return self.layer_types.count(kind) if self.layer_types else self.layers * (kind == FULL)

    def is_mixture(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return self.experts is not None and self.experts.in_layer(layer)

    @property
    def mlp_parameters(self) -> int:
        """Weights of the matrix products of a dense MLP: gate (if there is one), up, down."""
        return (3 if self.gated_mlp else 2) * self.hidden * self.intermediate

    def attention_parameters_of(self, kind: LayerType) -> int:
        """Weights of the matrix products of one layer's attention."""
        if kind == LINEAR:
            assert self.linear is not None, self.name
            return self.linear.matrix_parameters(self.hidden)
        if self.latent is not None:
            return self.latent.matrix_parameters(self.hidden, self.heads)
        gate = self.hidden * self.heads * self.head_dim if self.output_gate else 0
        return 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim + gate

    def parameters_of(self, layer: int) -> int:
        """All weights of a layer: matrices, norms, biases, and all experts if it has them."""
        return self._parameters_of(self.layer_type(layer), self.is_mixture(layer))

    def _parameters_of(self, kind: LayerType, mixture: bool) -> int:
        matrices = self.attention_parameters_of(kind) + self._attention_rest(kind)
        matrices += self.norms * self._norm_parameters
        if not mixture:
            return matrices + self.mlp_parameters + self._mlp_biases
        assert self.experts is not None, self.name
        experts, hidden = self.experts, self.hidden
        beside = experts.gate_parameters(hidden) + experts.shared_parameters(hidden)
        return matrices + beside + experts.routed_parameters(hidden) + experts.bias_parameters(hidden)

    def _attention_rest(self, kind: LayerType) -> int:
        """Norms, biases and other weights of attention beside its matrices."""
        if kind == LINEAR:
            assert self.linear is not None, self.name
            return self.linear.other_parameters
        norms = self.latent.norm_parameters if self.latent is not None else 0
        if self.qk_norm:
            both = self.heads + self.kv_heads if self.wide_qk_norm else 2
            norms += both * self.head_dim
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        return norms + qkv + (self.hidden if self.output_bias else 0) + (self.heads if self.sinks else 0)

    def routed_parameters_of(self, layer: int) -> int:
        """Weights of the routed experts of one layer."""
        if self.experts is None or not self.is_mixture(layer):
            return 0
        return self.experts.routed_parameters(self.hidden)

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return sum(self.is_mixture(layer) for layer in range(self.layers))

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
    def checkpoint_parameters(self) -> int:
        """All weights of the checkpoint, with its predictors of further tokens.

        A predictor is a layer like the last one, with a product of both its inputs, a norm of each, one of
        its output (DeepSeek-V3 report, section 2.2; weight files).
        """
        if not self.predictors:
            return self.parameters
        tables = 2 * self.embedding_parameters if self.predictor_tables else 0
        beside = 2 * self.hidden * self.hidden + 3 * self.hidden + tables
        each = self._parameters_of(FULL, self.is_mixture(self.layers - 1)) + beside
        return self.parameters + self.predictors * each

    @property
    def final_norm_parameters(self) -> int:
        """Weights of the norm before the head."""
        return self._norm_parameters

    @property
    def active_parameters(self) -> int:
        """Weights that one token uses: all but the experts that its gates do not choose."""
        if self.experts is None:
            return self.parameters
        experts = self.experts
        routed = experts.routed_parameters(self.hidden) + experts.bias_parameters(self.hidden)
        idle = (experts.count - experts.per_token) * (routed // experts.count)
        return self.parameters - self.moe_layers * idle

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
        return _weight_bytes(self)

    @property
    def dense_products(self) -> tuple[int, int]:
        """Weights of the products that every token goes through: of attention, and of MLPs; all layers.

        Gates and shared experts of a mixture are among those of MLPs.
        """
        layers = range(self.layers)
        attention = sum(self.attention_parameters_of(self.layer_type(layer)) for layer in layers)
        mlps = sum(self._dense_mlp_of(layer) for layer in layers)
        gates = 0 if self.experts is None else self.moe_layers * self.experts.gate_parameters(self.hidden)
        return attention, mlps + gates

    def dense_product_bytes(self, tp: int) -> int:
        """Bytes that ``tp`` ranks together read of ``dense_products`` in a step.

        What each of them has whole, each reads.
        """
        formats = self.formats
        stored = formats.format(formats.attention)
        found = 0
        for layer in range(self.layers):
            kind = self.layer_type(layer)
            found += stored.size_bytes(self.attention_parameters_of(kind))
            if self.latent is not None and kind == FULL:
                found += (tp - 1) * stored.size_bytes(self.latent.replicated_parameters(self.hidden))
            found += formats.format(formats.mlp).size_bytes(self._dense_mlp_of(layer))
            if self.experts is not None and self.is_mixture(layer):
                found += tp * self.experts.gate_parameters(self.hidden) * self.bytes_per_parameter
        return found

    def layer_bytes(self, layer: int, expert_parts: int = 1) -> int:
        """Bytes of one layer; of its routed experts one part in ``expert_parts``."""
        formats = self.formats
        routed = self.routed_parameters_of(layer)
        attention = self.attention_parameters_of(self.layer_type(layer))
        mlp = self._dense_mlp_of(layer)
        rest = self.parameters_of(layer) - attention - mlp - routed
        return (
            formats.format(formats.attention).size_bytes(attention)
            + formats.format(formats.mlp).size_bytes(mlp)
            + formats.format(formats.experts).size_bytes(-(-routed // expert_parts))
            + rest * self.bytes_per_parameter
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that a further token of context adds in all layers, on all ranks together.

        A latent is not split over heads: each rank keeps a copy, and this is one copy (``kv_copies``). Layers
        with a short window or a state add nothing: ``kv_bytes_per_sequence``.
        """
        return self.kv_bytes_of(range(self.layers))

    def kv_bytes_of(self, layers: range) -> int:
        """Bytes that a further token of context adds in these layers."""
        growing = sum(self._grows(self.layer_type(layer)) for layer in layers)
        return self._kv_layer_bytes(growing)

    @property
    def kv_bytes_per_sequence(self) -> int:
        """Bytes of one sequence in layers that keep a window or a state, whatever its context; all ranks."""
        return self.kv_sequence_bytes_of(range(self.layers))

    def kv_sequence_bytes_of(self, layers: range) -> int:
        """Bytes of one sequence in those of these layers that keep a window or a state."""
        return self._window_bytes_of(layers) + self._state_bytes_of(layers)

    def kv_sequence_bytes_on(self, tp: int, layers: range) -> int:
        """Bytes of one sequence in these layers that ``tp`` ranks hold together.

        Windows are copied as other KV is, states are split over their own heads.
        """
        windows, states = self.kv_copies(tp) * self._window_bytes_of(layers), self._state_bytes_of(layers)
        return windows + (states * max(1, tp // self.linear.key_heads) if self.linear is not None else 0)

    @property
    def keeps_states(self) -> bool:
        """Whether a layer keeps a state instead of KV."""
        return LINEAR in self.layer_types

    def _window_bytes_of(self, layers: range) -> int:
        if self._grows(SLIDING):
            return 0
        windows = sum(self.layer_type(layer) == SLIDING for layer in layers)
        return self._kv_layer_bytes(windows) * self.window_tokens

    def _state_bytes_of(self, layers: range) -> int:
        states = sum(self.layer_type(layer) == LINEAR for layer in layers)
        if not states:
            return 0
        assert self.linear is not None, self.name
        return states * self.linear.sequence_bytes

    def _grows(self, kind: LayerType) -> bool:
        """Whether a layer keeps more with every token."""
        return kind == FULL or (kind == SLIDING and self.window_tokens > LONGEST_BOUNDING_WINDOW)

    def _kv_layer_bytes(self, layers: int) -> int:
        """Bytes of one token in so many layers with KV."""
        stored = self.formats.format(self.formats.kv)
        if self.latent is None:
            return stored.size_bytes(2 * layers * self.kv_heads * self.head_dim)
        if self.latent.index is None:
            return stored.size_bytes(layers * self.latent.kv_elements)
        latent = self.latent.packed_bytes if stored.bits == 8 else stored.size_bytes(self.latent.kv_elements)
        return layers * (latent + self.latent.index.cached_bytes)

    def kv_copies(self, tp: int) -> int:
        """How many times ``tp`` ranks together hold the bytes of ``kv_bytes_per_token``.

        A latent is on every rank; of KV heads that are fewer than the ranks, each rank holds one.
        """
        return tp if self.latent is not None else max(1, tp // self.kv_heads)

    def splits_into(self, tp: int) -> bool:
        """Whether query heads and the widths of experts divide evenly over ``tp`` ranks.

        KV heads do too, or each is on equally many ranks (vLLM, model_executor/models/llama.py).
        """
        if tp < 1 or self.heads % tp or (self.experts is not None and self.experts.width % tp):
            return False
        return self.latent is not None or self.kv_heads % tp == 0 or tp % self.kv_heads == 0

    def require_tp(self, tp: int) -> None:
        """Refuse a tensor-parallel size that would split heads, or have some on more ranks than others."""
        if not self.splits_into(tp):
            sizes = ", ".join(str(size) for size in range(1, self.heads + 1) if self.splits_into(size))
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
        """Whether operations take the same time: all that a step uses is equal, but for its sampling."""
        same = replace(
            other,
            name=self.name,
            source=self.source,
            max_context_tokens=self.max_context_tokens,
            predictors=self.predictors,
            predictor_tables=self.predictor_tables,
            top_p=self.top_p,
        )
        return self == same

    def _dense_mlp_of(self, layer: int) -> int:
        """Weights of the MLP that every token goes through in a layer: the shared experts of a mixture."""
        if self.experts is None or not self.is_mixture(layer):
            return self.mlp_parameters
        return self.experts.shared_parameters(self.hidden)

    @property
    def _norm_parameters(self) -> int:
        return 2 * self.hidden if self.norm_bias else self.hidden

    @property
    def _mlp_biases(self) -> int:
        into_intermediate = self.intermediate * (2 if self.gated_mlp else 1)
        return into_intermediate + self.hidden if self.mlp_bias else 0


@lru_cache(maxsize=256)
def _weight_bytes(shape: LlmShape) -> int:
    """A thousand models of one shape sum over its layers once."""
    layers = sum(shape.layer_bytes(layer) for layer in range(shape.layers))
    beside = shape.parameters - sum(shape.parameters_of(layer) for layer in range(shape.layers))
    return layers + beside * shape.bytes_per_parameter
