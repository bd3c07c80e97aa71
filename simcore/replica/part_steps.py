"""Step times of a replica with some of a model's layers: its layers' part of every step."""

from collections.abc import Sequence

from serving.vocabulary.actions import Chunk, Span
from simcore.replica.step_times import Pieces, StepTimes


def layers_fixed(whole: int, first: int, last: int, model_layers: int) -> int:
    """The part of layers [first, last) in the fixed-point cost of a pass over all layers.

    Every layer takes the same part. If the cost does not divide evenly, a layer costs the growth of the
    rounded sum over the layers up to it, so the parts of a split add up to the whole exactly. The rest of a
    step (embedding, head, launch) is spread evenly over the layers.
    """
    return whole * last // model_layers - whole * first // model_layers


class PartSteps:
    """``StepTimes`` of layers [first, last) of a model, computed from those of the whole model."""

    __slots__ = ("_decode", "_first", "_last", "_model_layers", "_rows")

    def __init__(self, rows: StepTimes, layers: Span, model_layers: int) -> None:
        self._rows = rows
        self._first, self._last = layers
        self._model_layers = model_layers
        self._decode: dict[int, Pieces] = {}

    def decode(self, n: int) -> Pieces:
        """Linear pieces of the whole, each scaled to the part."""
        found = self._decode.get(n)
        if found is None:
            whole = self._rows.decode(n)
            found = tuple([(limit, self._part(cost), self._part(slope)) for limit, cost, slope in whole])
            self._decode[n] = found
        return found

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A step with prompt chunks."""
        return self._part(self._rows.mixed(n, context, chunks, spread))

    @property
    def skewed(self) -> bool:
        """As in the whole model."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """The layers' part."""
        return self._part(self._rows.output_token)

    def shift(self, n: int, spread: int) -> int:
        """As in the whole model: these are tokens."""
        return self._rows.shift(n, spread)

    def _part(self, whole: int) -> int:
        return layers_fixed(whole, self._first, self._last, self._model_layers)
