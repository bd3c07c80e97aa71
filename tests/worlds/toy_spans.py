"""Toy step times of a path whose replicas run any layers: each layer has its part of its stage's costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serving.vocabulary.actions import Chunk, Span
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.toy_rows import ToyRows


def _layer(rows: ToyRows, layers: int) -> ToyRows:
    return replace(
        rows,
        intercept=max(1, rows.intercept // layers),
        per_sequence=rows.per_sequence // layers,
        slope=rows.slope // layers,
        mixed_intercept=max(1, rows.mixed_intercept // layers),
        per_token=rows.per_token // layers,
        knot_intercept=max(1, rows.knot_intercept // layers),
        knot_slope=rows.knot_slope // layers,
    )


@dataclass(frozen=True)
class ToySpans:
    """``whole``: of stages of so many layers each; ``spans``: the layers of each replica of the path."""

    whole: ToyStages
    stage_layers: int
    spans: tuple[Span, ...]
    output_token: int = 0

    @property
    def stages(self) -> int:
        return len(self.spans)

    def _rows(self, span: Span) -> list[ToyRows]:
        of = self.stage_layers
        return [_layer(self.whole.rows[layer // of], of) for layer in range(*span)]

    def decode(self, n: int) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        found = []
        for piece, (limit, _, _) in enumerate(self.whole.rows[0].decode(n)):
            own = [[one.decode(n)[piece] for one in self._rows(span)] for span in self.spans]
            costs = tuple(sum(cost for _, cost, _ in rows) for rows in own)
            found.append((limit, costs, tuple(sum(slope for _, _, slope in rows) for rows in own)))
        return tuple(found)

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> tuple[int, ...]:
        return tuple(
            sum(one.mixed(n, context, chunks, spread) for one in self._rows(span)) for span in self.spans
        )

    def hops(self, tokens: int) -> tuple[int, ...]:
        return (0, *[self.whole.per_hop + self.whole.per_token * tokens] * (self.stages - 1))

    @property
    def skewed(self) -> bool:
        return self.whole.skewed

    def shift(self, n: int, spread: int) -> int:
        return self.whole.shift(n, spread)
