"""Step times compiled to integers; the rows define time in a simulation.

Fixed point is nanoseconds with ``FRACTION_BITS`` binary fraction bits, so k steps added one by one and k
steps in closed form are the same integer.
"""

from collections.abc import Callable, Sequence
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_times.step_time import Piece, StepLimits, StepModel

FRACTION_BITS: Final = 24
FIXED_PER_S: Final = float(1_000_000_000 << FRACTION_BITS)
# Binary fraction bits of alpha, the share of a spread that counts; no measurement resolves 2^-16 of it.
SKEW_BITS: Final = 16
SKEW_ONE: Final = 1 << SKEW_BITS

Row = tuple[int, int, int]


class StepRows:
    """Integer step costs of one replica; compiled per number of decoding sequences, on first use."""

    __slots__ = (
        "_alphas",
        "_attention",
        "_decode",
        "_dense_s",
        "_interplay",
        "_launch_s",
        "_max_decode",
        "_max_prefill",
        "_max_prompt",
        "_model",
        "_prefill_attention_s",
        "_skew",
        "limits",
        "output_token",
        "skewed",
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
        self._alphas: dict[int, int] = {}
        self._interplay = model.interplay
        self._launch_s = _launch_s(model)
        self.output_token: int = _fixed(getattr(model, "output_token_s", 0.0))
        """What a token that a decoding sequence has generated adds to each step, fixed point."""
        self._skew = _skew(model)
        self.skewed: bool = self._skew is not None

    def decode(self, n: int) -> tuple[Row, ...]:
        """Pieces (context limit, intercept, slope) of a decode step of ``n`` sequences, n >= 1.

        Its time at total context T is exactly ``intercept + slope * T`` of the first piece with T <= limit;
        a T above the last limit is out of range (``out_of_context`` makes the error).
        """
        rows = self._decode.get(n)
        if rows is None:
            attention = self._attention_rows(n)
            dense = _fixed(self._model.dense_s(0, 0, n))
            rows = _with_dense(attention, dense)
            self._decode[n] = rows
        return rows

    def decode_cost(self, n: int, context: int) -> int:
        """Fixed-point cost of one decode step of ``n`` sequences with total context ``context``."""
        for limit, intercept, slope in self.decode(n):
            if context <= limit:
                return intercept + slope * context
        raise self.out_of_context(n, context)

    def shift(self, n: int, spread: int, prefill_tokens: int = 0) -> int:
        """Tokens to add to the total context of ``n`` decoding sequences because their contexts are unequal.

        ``spread`` is n times the largest context less the total. It is constant while the same sequences
        decode, so a run of shifted steps is as linear as one of equal contexts. ``prefill_tokens`` share the
        step.
        """
        if self._skew is None:
            return 0
        alpha = None if prefill_tokens else self._alphas.get(n)
        if alpha is None:
            alpha = int(self._skew(n, prefill_tokens) * (1 << SKEW_BITS))
            if not prefill_tokens:
                self._alphas[n] = alpha
        return alpha * spread >> SKEW_BITS

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0) -> int:
        """Fixed-point cost of a step with ``chunks`` (request, start, tokens) and ``n`` decoding sequences.

        ``context`` is the total context of the n sequences, ``spread`` as in ``shift``; both are ignored when
        n is 0.
        """
        count = len(chunks)
        if count == 1:  # the most frequent case
            _, cached, tokens = chunks[0]
            if tokens < 1 or cached < 0 or cached + tokens > self._max_prompt or tokens > self._max_prefill:
                self._prompts(chunks)  # raises the error
            seconds = self._prefill_attention_s(tokens, cached)
        else:
            tokens, cached, seconds = self._prompts(chunks)
        if n <= 0 and not tokens:
            raise HardwareError("a step needs a prefill chunk or a decoding sequence")
        seconds += self._dense_s(tokens, count, n)
        interplay = self._interplay
        if n <= 0:
            cost = int(seconds * FIXED_PER_S + 0.5)
        elif interplay is None or not tokens:
            if spread:
                context += self.shift(n, spread, tokens)
            limit, intercept, slope = (self._attention.get(n) or self._attention_rows(n))[0]
            cost = int(seconds * FIXED_PER_S + 0.5)
            cost += intercept + slope * context if context <= limit else self._attention_cost(n, context)
        else:
            if n > self._max_decode:
                raise self._too_many(n)
            if spread:
                context += self.shift(n, spread, tokens)
            seconds += interplay.mixed_decode_attention_s(n, context, tokens, cached)
            cost = int(seconds * FIXED_PER_S + 0.5)
        if seconds < 0.0 and interplay is None:
            raise ValueError(f"a step model returned a negative time, {seconds} s")
        return cost if cost > 0 else 1

    def _prompts(self, chunks: Sequence[tuple[int, int, int]]) -> tuple[int, int, float]:
        """(tokens, tokens stored before the longest chunk, seconds of attention) of the chunks of a step."""
        tokens = longest = cached = 0
        seconds = 0.0
        for request, start, new in chunks:
            if new < 1 or start < 0 or start + new > self._max_prompt:
                raise self._bad_chunk(request, start, new)
            tokens += new
            seconds += self._prefill_attention_s(new, start)
            if new > longest:
                longest, cached = new, start
        if tokens > self._max_prefill:
            raise HardwareError(
                f"a step with {tokens} prefill tokens is beyond the step model's {self._max_prefill}; "
                "lower the engine's prefill batch"
            )
        if len(chunks) > 1:
            seconds -= self._launch_s * (len(chunks) - 1)
        return tokens, cached, seconds

    def out_of_context(self, n: int, context: int) -> HardwareError:
        """The error for a step whose total context is beyond the model's range."""
        limit = self._attention_rows(n)[-1][0]
        return HardwareError(
            f"{n} decoding sequences with {context} tokens of context are beyond the step model's {limit}; "
            f"write engine.kv_tokens={limit}, or an engine.profile whose measured times reach further"
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
                raise self._too_many(n)
            rows = _compile(self._model.decode_attention(n))
            self._attention[n] = rows
        return rows

    def _too_many(self, n: int) -> HardwareError:
        return HardwareError(
            f"{n} decoding sequences are outside the step model's 1 to {self._max_decode}; "
            "lower the engine's max_num_seqs"
        )

    def _bad_chunk(self, request: int, start: int, new: int) -> HardwareError:
        return HardwareError(
            f"chunk of request {request} covers prompt tokens {start} to {start + new}; "
            f"the step model covers 1 or more tokens within 0 to {self._max_prompt}"
        )


def _compile(pieces: Sequence[Piece]) -> tuple[Row, ...]:
    """Integer rows of ``pieces``; a model that breaks the protocol is a programming error.

    A piece that is steeper than the one before may start below 0, if its values are not below 0.
    """
    limits = [piece.context_limit for piece in pieces]
    if not limits or limits != sorted(set(limits)):
        raise ValueError(f"decode attention pieces must have increasing context limits, got {limits}")
    for piece, before in zip(pieces, (0, *limits)):
        if piece.intercept_s < 0.0:
            _fixed(piece.intercept_s + piece.slope_s_per_token * before)
    return tuple(
        (p.context_limit, round(p.intercept_s * FIXED_PER_S), _fixed(p.slope_s_per_token)) for p in pieces
    )


def _with_dense(attention: tuple[Row, ...], dense: int) -> tuple[Row, ...]:
    """Rows of whole decode steps; a row that would start at 0 takes one unit instead."""
    rows = []
    before = 0
    for limit, intercept, slope in attention:
        rows.append((limit, max(1 - slope * before, dense + intercept), slope))
        before = limit
    return tuple(rows)


def _skew(model: StepModel) -> Callable[[int, int], float] | None:
    """Alpha by decoding sequences and prompt tokens: as measured, else as declared; None if it is 0."""
    if model.interplay is not None and model.interplay.skewed:
        return model.interplay.skew
    unequal = getattr(model, "unequal", None)
    return unequal.skew if unequal is not None and unequal.counts else None


def _launch_s(model: StepModel) -> float:
    """The least time of a chunk: chunks of one step share a kernel launch, and pay it once.

    Extrapolated to zero tokens from one and two tokens. Against 60 measured steps of 2 to 16 equal prompts of
    128 to 4,096 tokens (tests/hwmodels/test_rows_mixed.py) it is 0.4 % off on average; 1.3 % without.
    """
    return max(0.0, 2.0 * model.prefill_attention_s(1, 0) - model.prefill_attention_s(2, 0))


def _fixed(seconds: float) -> int:
    if seconds < 0.0:
        raise ValueError(f"a step model returned a negative time, {seconds} s")
    # Rounded like mixed steps, including ties: one without chunks is exactly a decode step.
    return int(seconds * FIXED_PER_S + 0.5)
