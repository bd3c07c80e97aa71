"""A model that answers in one pass and keeps no KV: its layers in order, with their bytes and times."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError

# It has no context, so any number of tokens is within the limit.
_ANY_CONTEXT = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStack:
    """``layer_bytes`` and ``layer_s`` of every layer: parameters, and time of one request.

    The part before the first layer or after the last one is counted with that layer. ``tokens``: of a request
    (1 if it has none). ``activation_bytes``: what one request sends from a layer to the next. ``cut``: the
    publisher's cut, as layers of each stage. ``labels``: which of these numbers are unpublished.
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
            raise HardwareError(f"{self.name} needs one time and one size per layer, and at least one layer")
        if min(self.layer_bytes) < 1 or min(self.layer_s) <= 0.0:
            raise HardwareError(f"{self.name} has a layer without bytes or time: leave that layer out")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.layer_bytes)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all layers."""
        return sum(self.layer_bytes)

    @property
    def execution_s(self) -> float:
        """Time of one request through all layers, without waiting."""
        return sum(self.layer_s)

    @property
    def kv_bytes_per_token(self) -> int:
        """0: the model keeps no KV."""
        return 0

    @property
    def kv_bytes_per_sequence(self) -> int:
        """0: the model keeps no KV."""
        return 0

    @property
    def max_context_tokens(self) -> int:
        """A number without effect: the model has no context."""
        return _ANY_CONTEXT

    def bytes_of(self, first: int, last: int) -> int:
        """Parameters of layers [first, last)."""
        return sum(self.layer_bytes[first:last])

    def seconds_of(self, first: int, last: int) -> float:
        """One request through layers [first, last)."""
        return sum(self.layer_s[first:last])

    def require_tp(self, tp: int) -> None:
        """Accept only tp 1: the layers are not split over ranks."""
        if tp != 1:
            raise HardwareError(f"{self.name} is cut into stages and not over ranks: write model.tp=1")
