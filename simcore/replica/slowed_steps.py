"""Step times that are temporarily longer: those of a replica that copies KV of a running request."""

from collections.abc import Sequence
from typing import Final

from serving.vocabulary.actions import Chunk
from simcore.replica.step_times import Pieces, StepTimes

_ONE: Final = 1_000_000


class SlowedSteps:
    """``StepTimes`` that are ``ppm`` parts per million longer than its ``own``."""

    __slots__ = ("_decode", "_ppm", "own")

    def __init__(self, own: StepTimes, ppm: int) -> None:
        self.own, self._ppm = own, ppm
        self._decode: dict[int, Pieces] = {}

    def decode(self, n: int) -> Pieces:
        """Linear pieces remain linear."""
        longer_pieces = self._decode.get(n)
        if longer_pieces is None:
            pieces = self.own.decode(n)
            longer_pieces = tuple(
                [(limit, self._longer(cost), self._longer(slope)) for limit, cost, slope in pieces]
            )
            self._decode[n] = longer_pieces
        return longer_pieces

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A step with prompt chunks."""
        return self._longer(self.own.mixed(n, context, chunks, spread))

    @property
    def skewed(self) -> bool:
        """As in its own step times."""
        return self.own.skewed

    @property
    def output_token(self) -> int:
        """Longer as well."""
        return self._longer(self.own.output_token)

    def shift(self, n: int, spread: int) -> int:
        """As in its own step times: these are tokens."""
        return self.own.shift(n, spread)

    def _longer(self, cost: int) -> int:
        return cost + cost * self._ppm // _ONE


def own_steps(rows: StepTimes) -> StepTimes:
    """The step times without slowdown."""
    return rows.own if isinstance(rows, SlowedSteps) else rows
