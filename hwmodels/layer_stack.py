"""A model that answers in one pass and keeps no KV: its layers in order, with their bytes and their time."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError

# It looks at no context, so any number of tokens is within it.
_ANY_CONTEXT = 1 << 30


@dataclass(frozen=True, slots=True)
class LayerStack:
    """``layer_bytes`` and ``layer_s`` of every layer: parameters, and time of one request.

    What stands before the first layer or after the last one is counted with it. ``tokens``: what a request
    has (1 where it has none). ``activation_bytes``: what one request sends from a layer to the next.
    ``cut``: where its publisher cuts it, layers of each stage. ``labels``: what of this nobody published.
    """

    name: str
    layer_bytes: tuple[int, ...]
    layer_s: tuple[float, ...]
    tokens: int
    activation_bytes: int
    cut: tuple[int, ...]
    source: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layer_bytes or len(self.layer_bytes) != len(self.layer_s):
            raise HardwareError(f"{self.name} needs as many times as sizes of layers, and at least one")
        if min(self.layer_bytes) < 1 or min(self.layer_s) <= 0.0:
            raise HardwareError(f"{self.name} has a layer without bytes or time: leave that layer out")

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.layer_bytes)

    @property
    def weight_bytes(self) -> int:
        """Of all layers."""
        return sum(self.layer_bytes)

    @property
    def execution_s(self) -> float:
        """One request through all layers, without a wait."""
        return sum(self.layer_s)

    @property
    def kv_bytes_per_token(self) -> int:
        """It keeps no KV."""
        return 0

    @property
    def max_context_tokens(self) -> int:
        """It has no context to fill."""
        return _ANY_CONTEXT

    def bytes_of(self, first: int, last: int) -> int:
        """Parameters of layers [first, last)."""
        return sum(self.layer_bytes[first:last])

    def seconds_of(self, first: int, last: int) -> float:
        """One request through layers [first, last)."""
        return sum(self.layer_s[first:last])

    def require_tp(self, tp: int) -> None:
        """Its layers are not cut over ranks."""
        if tp != 1:
            raise HardwareError(f"{self.name} is cut into stages and not over ranks: write model.tp=1")
