"""Step times compiled to integers: the rows are the definition of time in a simulation.

Fixed point is nanoseconds with ``FRACTION_BITS`` binary fraction bits, so k steps added one by one and k
steps in closed form are the same integer.
"""

from collections.abc import Sequence
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_time import Piece, StepLimits, StepModel

FRACTION_BITS: Final = 24
FIXED_PER_S: Final = float(1_000_000_000 << FRACTION_BITS)

Row = tuple[int, int, int]


class StepRows:
    """Integer step costs of one replica; compiled per number of decoding sequences, on first use."""

    __slots__ = (
        "_attention",
        "_decode",
        "_dense_s",
        "_max_decode",
        "_max_prefill",
        "_max_prompt",
        "_model",
        "_prefill_attention_s",
        "limits",
    )

    def __init__(self, model: StepModel) -> None:
        self._model = model
        self._dense_s = model.dense_s
        self._prefill_attention_s = model.prefill_attention_s
        self.limits: StepLimits = model.limits
        self._max_decode = self.limits.max_decode_sequences
        self._max_prefill = self.limits.max_prefill_tokens
        self._max_prompt = self.limits.prompt_tokens
        self._attention: dict[int, tuple[Row, ...]] = {}
        self._decode: dict[int, tuple[Row, ...]] = {}

    def decode(self, n: int) -> tuple[Row, ...]:
        """Pieces (context limit, intercept, slope) of a decode step of ``n`` sequences, n >= 1.

        Its time at total context T is exactly ``intercept + slope * T`` of the first piece with T <= limit;
        a T above the last limit is out of range (``out_of_context`` makes the error).
        """
        rows = self._decode.get(n)
        if rows is None:
            attention = self._attention_rows(n)
            dense = _fixed(self._model.dense_s(0, 0, n))
            rows = tuple((limit, max(1, dense + intercept), slope) for limit, intercept, slope in attention)
            self._decode[n] = rows
        return rows

    def decode_cost(self, n: int, context: int) -> int:
        """Fixed-point cost of one decode step of ``n`` sequences with total context ``context``."""
        for limit, intercept, slope in self.decode(n):
            if context <= limit:
                return intercept + slope * context
        raise self.out_of_context(n, context)

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]]) -> int:
        """Fixed-point cost of a step with ``chunks`` (request, start, tokens) and ``n`` decoding sequences.

        ``context`` is the total context of the n sequences; it is ignored when n is 0.
        """
        tokens = 0
        seconds = 0.0
        for request, start, new in chunks:
            if new < 1 or start < 0 or start + new > self._max_prompt:
                raise self._bad_chunk(request, start, new)
            tokens += new
            seconds += self._prefill_attention_s(new, start)
        if tokens > self._max_prefill:
            raise HardwareError(
                f"a step with {tokens} prefill tokens is beyond the step model's {self._max_prefill}; "
                "lower the engine's prefill batch"
            )
        if n <= 0 and not tokens:
            raise HardwareError("a step without prefill chunks and without decoding sequences has no time")
        seconds += self._dense_s(tokens, len(chunks), n)
        if seconds < 0.0:
            raise ValueError(f"a step model answered a negative time, {seconds} s")
        cost = int(seconds * FIXED_PER_S + 0.5)
        if n > 0:
            limit, intercept, slope = (self._attention.get(n) or self._attention_rows(n))[0]
            if context <= limit:
                cost += intercept + slope * context
            else:
                cost += self._attention_cost(n, context)
        return cost if cost > 0 else 1

    def out_of_context(self, n: int, context: int) -> HardwareError:
        """The error of a step whose total context is beyond the model's range."""
        limit = self._attention_rows(n)[-1][0]
        return HardwareError(
            f"{n} decoding sequences with {context} tokens of context are beyond the step model's {limit}; "
            "lower the KV capacity or choose a step model with a wider range"
        )

    def _attention_cost(self, n: int, context: int) -> int:
        for limit, intercept, slope in self._attention.get(n) or self._attention_rows(n):
            if context <= limit:
                return intercept + slope * context
        raise self.out_of_context(n, context)

    def _attention_rows(self, n: int) -> tuple[Row, ...]:
        rows = self._attention.get(n)
        if rows is None:
            if not 1 <= n <= self._max_decode:
                raise HardwareError(
                    f"{n} decoding sequences are outside the step model's 1 to {self._max_decode}; "
                    "lower the engine's max_num_seqs"
                )
            rows = _compile(self._model.decode_attention(n))
            self._attention[n] = rows
        return rows

    def _bad_chunk(self, request: int, start: int, new: int) -> HardwareError:
        return HardwareError(
            f"chunk of request {request} covers prompt tokens {start} to {start + new}; "
            f"the step model answers for 1 or more tokens within 0 to {self._max_prompt}"
        )


def _compile(pieces: Sequence[Piece]) -> tuple[Row, ...]:
    """Integer rows of ``pieces``; a model that breaks the protocol is a programming error."""
    limits = [piece.context_limit for piece in pieces]
    if not limits or limits != sorted(set(limits)):
        raise ValueError(f"decode attention pieces must have increasing context limits, got {limits}")
    return tuple((p.context_limit, _fixed(p.intercept_s), _fixed(p.slope_s_per_token)) for p in pieces)


def _fixed(seconds: float) -> int:
    if seconds < 0.0:
        raise ValueError(f"a step model answered a negative time, {seconds} s")
    return round(seconds * FIXED_PER_S)
