"""Mixtures of experts: the sizes that such a model has beyond a dense one's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The MLP of a layer: ``count`` routed experts, gated MLPs of ``width``; a token goes to ``per_token``.

    ``shared_width``: of all shared experts together, which every token goes through (0: none);
    ``shared_gate``: a gate of their own weighs their output. ``dense_layers``: number of first layers with
    one MLP of the model's ``intermediate`` instead; behind them every ``every``-th layer is a mixture and the
    others are dense. ``gate_bias``: the gate has a bias for each expert (DeepSeek-V3 corrects its scores with
    it). ``bias``: the matrices of the experts have biases.
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0
    gate_bias: bool = False
    shared_gate: bool = False
    every: int = 1
    bias: bool = False

    def in_layer(self, layer: int) -> bool:
        """Whether a layer is a mixture: behind the dense ones, the last of every ``every`` layers."""
        return layer >= self.dense_layers and (layer + 1) % self.every == 0

    def routed_parameters(self, hidden: int) -> int:
        """Weights of all routed experts of a layer."""
        return self.count * self.parameters_of_one(hidden)

    def parameters_of_one(self, hidden: int) -> int:
        """Weights of one routed expert: gate, up and down."""
        return 3 * hidden * self.width

    def gate_parameters(self, hidden: int) -> int:
        """Weights of the gates, which every rank holds whole."""
        routed = self.count * hidden + (self.count if self.gate_bias else 0)
        return routed + (hidden if self.shared_gate else 0)

    def bias_parameters(self, hidden: int) -> int:
        """Biases of the routed experts of a layer: of gate, up and down."""
        return self.count * (2 * self.width + hidden) if self.bias else 0

    def shared_parameters(self, hidden: int) -> int:
        """Weights of the shared experts of a layer."""
        return 3 * hidden * self.shared_width
