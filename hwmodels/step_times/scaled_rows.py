"""Step times at one end of their error: operations times a factor per phase, and another overhead."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.rows import FIXED_PER_S, Row, StepRows
from hwmodels.step_times.unequal_contexts import LongestShare

FACTOR_BITS: Final = 20
_ONE: Final = 1 << FACTOR_BITS


@dataclass(frozen=True, slots=True)
class PhaseFactors:
    """The factors for a step's operations: with prompts alone, with decodes alone, with both."""

    prefill: float = 1.0
    decode: float = 1.0
    mixed: float = 1.0


class ScaledRows:
    """``StepRows`` of ``model`` with its operations times ``factors`` and ``overhead`` instead of its own.

    ``unequal``: the share of unequal contexts instead of its own.

    They cost the event loop an extra call per step with prompts; decode steps are compiled once, as in
    ``StepRows``.
    """

    __slots__ = (
        "_decode",
        "_decode_factor",
        "_mixed_factor",
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
        padding = replace(model.overhead, step_s=0.0, per_sequence_s=0.0, per_output_token_s=0.0)
        self._rows = StepRows(EngineStepModel(model.operations, padding, unequal or model.unequal))
        self._prefill_factor, self._decode_factor, self._mixed_factor = (
            round(factor * _ONE) for factor in (factors.prefill, factors.decode, factors.mixed)
        )
        self._step = round(overhead.step_s * FIXED_PER_S)
        self._per_sequence = round(overhead.per_sequence_s * FIXED_PER_S)
        self.output_token: int = round(overhead.per_output_token_s * FIXED_PER_S)
        self._decode: dict[int, tuple[Row, ...]] = {}

    def decode(self, n: int) -> tuple[Row, ...]:
        """As ``StepRows.decode``."""
        pieces = self._decode.get(n)
        if pieces is None:
            factor, own = self._decode_factor, self._step + self._per_sequence * n
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
        factor = self._mixed_factor if n > 0 else self._prefill_factor
        cost = (whole * factor >> FACTOR_BITS) + self._step + self._per_sequence * (max(n, 0) + len(chunks))
        return cost if cost > 0 else 1
