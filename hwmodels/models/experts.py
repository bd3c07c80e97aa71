"""Mixtures of experts, and attention over a latent: the sizes such models have beyond a dense one's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The MLP of a layer: ``count`` routed experts, gated MLPs of ``width``; a token goes to ``per_token``.

    ``shared_width``: of all shared experts together, which every token goes through (0: none).
    ``dense_layers``: number of first layers with one MLP of the model's ``intermediate`` instead.
    ``gate_bias``: the gate has a bias for each expert (DeepSeek-V3 corrects its scores with it).
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0
    gate_bias: bool = False

    def routed_parameters(self, hidden: int) -> int:
        """Weights of all routed experts of a layer."""
        return self.count * self.parameters_of_one(hidden)

    def parameters_of_one(self, hidden: int) -> int:
        """Weights of one routed expert: gate, up and down."""
        return 3 * hidden * self.width

    def gate_parameters(self, hidden: int) -> int:
        """Weights of the gate, which every rank holds whole."""
        return self.count * hidden + (self.count if self.gate_bias else 0)

    def shared_parameters(self, hidden: int) -> int:
        """Weights of the shared experts of a layer."""
        return 3 * hidden * self.shared_width


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): a token's KV is one latent of ``kv_rank`` and a rotary key.

    Sizes as in the publisher's config.json: ``nope`` and ``rope`` are the parts of a query head without and
    with rotary embedding, ``value`` the size of a value head; ``query_rank`` 0: queries have no latent.
    """

    kv_rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0

    @property
    def kv_elements(self) -> int:
        """Cached elements of a token in one layer; every tensor-parallel rank keeps a copy."""
        return self.kv_rank + self.rope

    def matrix_parameters(self, hidden: int, heads: int) -> int:
        """Weights of the matrix products of one layer."""
        query = heads * (self.nope + self.rope)
        queries = self.query_rank * (hidden + query) if self.query_rank else hidden * query
        keys_values = hidden * self.kv_elements + self.kv_rank * heads * (self.nope + self.value)
        return queries + keys_values + heads * self.value * hidden

    @property
    def norm_parameters(self) -> int:
        """Weights of the latents' norms."""
        return self.kv_rank + self.query_rank
