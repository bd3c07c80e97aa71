"""Step times at one end of their error: operations times a factor per phase, and another overhead."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.rows import FIXED_PER_S, Row, StepRows
from hwmodels.step_times.unequal_contexts import LongestShare

FACTOR_BITS: Final = 20
_ONE: Final = 1 << FACTOR_BITS


@dataclass(frozen=True, slots=True)
class PhaseFactors:
    """The factors for a step's operations: with prompts alone, with decodes alone, with both.

    ``least``: (decoding sequences, factor), ascending, on the same side of 1: no step with decodes has less.
    Between two numbers it goes by their logarithm.
    """

    prefill: float = 1.0
    decode: float = 1.0
    mixed: float = 1.0
    least: tuple[tuple[int, float], ...] = ()

    def with_decodes(self, sequences: int, own: float) -> float:
        """The factor of a step that decodes so many sequences; ``own``: ``decode`` or ``mixed``."""
        if not self.least:
            return own
        least = self.least[0 if sequences <= self.least[0][0] else -1][1]
        for (few, low), (many, high) in pairwise(self.least):
            if few < sequences < many:
                least = low + (high - low) * log(sequences / few) / log(many / few)
        return max(own, least) if least > 1.0 else min(own, least)


class ScaledRows:
    """``StepRows`` of ``model`` with its operations times ``factors`` and ``overhead`` instead of its own.

    ``unequal``: the share of unequal contexts instead of its own.

    They cost the event loop an extra call per step with prompts; decode steps are compiled once, as in
    ``StepRows``.
    """

    __slots__ = (
        "_decode",
        "_factors",
        "_mixed",
        "_per_sequence",
        "_prefill_factor",
        "_rows",
        "_step",
        "output_token",
    )

    def __init__(
        self,
        model: EngineStepModel,
        factors: PhaseFactors,
        overhead: EngineOverhead,
        unequal: LongestShare | None = None,
    ) -> None:
        padding = EngineOverhead(graph_batches=model.overhead.graph_batches)
        self._rows = StepRows(EngineStepModel(model.operations, padding, unequal or model.unequal))
        self._factors = factors
        self._prefill_factor = round(factors.prefill * _ONE)
        self._mixed: dict[int, int] = {}  # by decoding sequences
        self._step = round(overhead.step_s * FIXED_PER_S)
        self._per_sequence = round(overhead.sequence_s * FIXED_PER_S)
        self.output_token: int = round(overhead.per_output_token_s * FIXED_PER_S)
        self._decode: dict[int, tuple[Row, ...]] = {}

    def decode(self, n: int) -> tuple[Row, ...]:
        """As ``StepRows.decode``."""
        pieces = self._decode.get(n)
        if pieces is None:
            factor = round(self._factors.with_decodes(n, self._factors.decode) * _ONE)
            own = self._step + self._per_sequence * n
            pieces = tuple(
                (limit, (cost * factor >> FACTOR_BITS) + own, slope * factor >> FACTOR_BITS)
                for limit, cost, slope in self._rows.decode(n)
            )
            self._decode[n] = pieces
        return pieces

    def decode_cost(self, n: int, context: int) -> int:
        """As ``StepRows.decode_cost``."""
        for limit, cost, slope in self.decode(n):
            if context <= limit:
                return cost + slope * context
        raise self._rows.out_of_context(n, context)

    @property
    def skewed(self) -> bool:
        """As ``StepRows.skewed``."""
        return self._rows.skewed

    def shift(self, n: int, spread: int, prefill_tokens: int = 0) -> int:
        """As ``StepRows.shift``: these are tokens."""
        return self._rows.shift(n, spread, prefill_tokens)

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0) -> int:
        """As ``StepRows.mixed``; without chunks it is exactly a decode step."""
        if not chunks and n > 0:
            return self.decode_cost(n, context + self.shift(n, spread))
        whole = self._rows.mixed(n, context, chunks, spread)
        factor = self._mixed_factor(n) if n > 0 else self._prefill_factor
        cost = (whole * factor >> FACTOR_BITS) + self._step + self._per_sequence * (max(n, 0) + len(chunks))
        return cost if cost > 0 else 1

    def _mixed_factor(self, n: int) -> int:
        factor = self._mixed.get(n)
        if factor is None:
            factor = self._mixed[n] = round(self._factors.with_decodes(n, self._factors.mixed) * _ONE)
        return factor
