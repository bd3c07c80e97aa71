"""Step times of a replica that has some of a model's layers: of every step its layers' part."""

from collections.abc import Sequence

from serving.vocabulary.actions import Chunk, Span
from simcore.replica.step_times import Pieces, StepTimes


def layers_fixed(whole: int, first: int, last: int, model_layers: int) -> int:
    """What layers [first, last) take of the fixed-point cost of a pass over all of them.

    Every layer takes the same part. Where it does not divide, the cost of a layer is what the sum over the
    layers up to it grows by, so the parts of a split add up to the whole exactly. What is no layer
    (embedding, head, launching the step) is spread over the layers alike.
    """
    return whole * last // model_layers - whole * first // model_layers


class PartSteps:
    """``StepTimes`` of layers [first, last) of a model, from those of the whole model."""

    __slots__ = ("_decode", "_first", "_last", "_model_layers", "_rows")

    def __init__(self, rows: StepTimes, layers: Span, model_layers: int) -> None:
        self._rows = rows
        self._first, self._last = layers
        self._model_layers = model_layers
        self._decode: dict[int, Pieces] = {}

    def decode(self, n: int) -> Pieces:
        """A straight piece of the whole is a straight piece of a part."""
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
        """As the whole model."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """The layers' part."""
        return self._part(self._rows.output_token)

    def shift(self, n: int, spread: int) -> int:
        """As the whole model: these are tokens."""
        return self._rows.shift(n, spread)

    def _part(self, whole: int) -> int:
        return layers_fixed(whole, self._first, self._last, self._model_layers)
