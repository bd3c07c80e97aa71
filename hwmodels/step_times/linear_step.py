"""The linear rung: a few coefficients per (GPU, model, tensor-parallel size), fitted or declared.

Two forms. ``LinearStepModel`` has one line per phase (six coefficients), for tables of whole iterations.
``TiledStepModel`` has one line per kind of operation, in whole tiles of tokens, for tables of operations.
"""

from dataclasses import dataclass, fields

from hwmodels.errors import HardwareError
from hwmodels.step_times.step_error import ROUGH, StepErrors
from hwmodels.step_times.step_time import Interplay, Piece, StepLimits


def _require_times(coefficients: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(coefficients, name)
        if not 0.0 <= value < float("inf"):
            raise HardwareError(f"linear coefficient {name}={value} must be 0 or positive seconds")


def _require_tile(tile_tokens: int) -> None:
    if tile_tokens < 1:
        raise HardwareError(f"tile_tokens={tile_tokens} must be at least 1; write 1 for no rounding")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCoefficients:
    """Seconds. Decode step: ``decode_s + decode_per_sequence_s * n + decode_per_context_token_s * T``.

    Prefill step: ``prefill_s + prefill_per_token_s * tokens`` plus, per chunk,
    ``prefill_per_square_token_s * ((cached + new)^2 - cached^2)``, twice the causal (query, key) pairs.
    """

    decode_s: float
    decode_per_sequence_s: float
    decode_per_context_token_s: float
    prefill_s: float
    prefill_per_token_s: float
    prefill_per_square_token_s: float

    def __post_init__(self) -> None:
        _require_times(self, tuple(field.name for field in fields(self)))
        if max(self.decode_s, self.decode_per_sequence_s) == 0.0:
            raise HardwareError("linear coefficients decode_s and decode_per_sequence_s must not both be 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStepModel:
    """``limits`` is the range answered, ``measured`` the part of it that the fit has seen.

    ``includes_overhead``: the times were measured end to end, so they contain the engine's overhead.
    """

    coefficients: LinearCoefficients
    limits: StepLimits
    measured: StepLimits
    source: str
    error_band: str
    includes_overhead: bool = False
    labels: tuple[str, ...] = ()
    errors: StepErrors = ROUGH

    @property
    def interplay(self) -> Interplay | None:
        """None: the attention of a mixed step is the sum of its parts."""
        return None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """Mixed steps pay the larger intercept once: the weights are read once for both kinds of tokens."""
        c = self.coefficients
        decode_s = c.decode_per_sequence_s * decode_sequences
        if prefill_tokens == 0:
            return c.decode_s + decode_s
        prefill_s = c.prefill_per_token_s * prefill_tokens
        if decode_sequences == 0:
            # A short prompt cannot cost less than reading every weight once, which is decode_s.
            return max(c.prefill_s + prefill_s, c.decode_s)
        return max(c.prefill_s, c.decode_s) + prefill_s + decode_s

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """One linear piece up to the end of the range."""
        last = self.limits.total_context(decode_sequences)
        return (Piece(last, 0.0, self.coefficients.decode_per_context_token_s),)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The square term, telescoping over the chunks of one prompt."""
        squares = new_tokens * (new_tokens + 2 * cached_tokens)
        return self.coefficients.prefill_per_square_token_s * squares


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLines:
    """Seconds: ``step_s + per_sequence_s * sequences`` + the larger of two lines over tokens.

    ``floor_s + floor_per_token_s * tokens`` is reading the weights. ``line_s + per_token_s * tokens`` is
    computing, with tokens rounded up to whole ``tile_tokens``. ``step_s`` is head and kernel launches, paid
    by every step.
    """

    step_s: float
    per_sequence_s: float
    floor_s: float
    floor_per_token_s: float
    line_s: float
    per_token_s: float
    tile_tokens: int

    def __post_init__(self) -> None:
        _require_times(self, tuple(field.name for field in fields(self)[:-1]))
        _require_tile(self.tile_tokens)
        if max(self.floor_s, self.step_s) == 0.0:
            raise HardwareError("linear coefficients floor_s and step_s must not both be 0")

    def seconds(self, tokens: int, sequences: int) -> float:
        """A step of ``tokens`` whose head computes ``sequences`` rows."""
        floor_s = self.floor_s + self.floor_per_token_s * tokens
        line_s = self.line_s + self.per_token_s * padded(tokens, self.tile_tokens)
        return self.step_s + self.per_sequence_s * sequences + max(floor_s, line_s)


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """Attention of decoding sequences: ``intercept_s`` + ``per_sequence_s * n`` + the larger of two lines.

    ``per_context_token_s * T`` is reading all contexts. ``per_longest_token_s * T / n`` is traversing one of
    them, which dominates if a few sequences do not fill the GPU. After the intercept it takes at least
    ``least_per_sequence_s * n``: a sequence takes a block of the cache, however short it is.
    """

    intercept_s: float
    per_sequence_s: float
    per_context_token_s: float
    per_longest_token_s: float = 0.0
    least_per_sequence_s: float = 0.0

    def __post_init__(self) -> None:
        _require_times(self, tuple(field.name for field in fields(self)))

    def pieces(self, decode_sequences: int, max_context_tokens: int) -> tuple[Piece, ...]:
        """Constant while the sequences are short, then one line to ``max_context_tokens`` in total."""
        slope_s = max(self.per_context_token_s, self.per_longest_token_s / decode_sequences)
        start_s = self.intercept_s + self.per_sequence_s * decode_sequences
        flat_s = (self.least_per_sequence_s - self.per_sequence_s) * decode_sequences
        line = Piece(max_context_tokens, start_s, slope_s)
        if flat_s < slope_s:  # below the length of one token
            return (line,)
        if flat_s >= slope_s * max_context_tokens:
            return (Piece(max_context_tokens, start_s + flat_s, 0.0),)
        return Piece(int(flat_s / slope_s), start_s + flat_s, 0.0), line


@dataclass(frozen=True, slots=True)
class ChunkLine:
    """Attention of one prompt chunk: ``per_token_s * new + per_square_token_s * tiles * (new + 2 * cached)``.

    ``tiles`` is ``new`` rounded up to whole ``tile_tokens``: the tokens one wave of the GPU computes at once,
    so a short chunk behind a long cache costs as much as a full one.
    """

    per_token_s: float
    per_square_token_s: float
    tile_tokens: int

    def __post_init__(self) -> None:
        _require_times(self, ("per_token_s", "per_square_token_s"))
        _require_tile(self.tile_tokens)

    def squares_s(self, query_tokens: int, new_tokens: int, cached_tokens: int) -> float:
        """``query_tokens`` against the mean context of the chunk."""
        return self.per_square_token_s * query_tokens * (new_tokens + 2 * cached_tokens)

    def seconds(self, new_tokens: int, cached_tokens: int) -> float:
        """A chunk alone in its step."""
        tiles = padded(new_tokens, self.tile_tokens)
        return self.per_token_s * new_tokens + self.squares_s(tiles, new_tokens, cached_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedAttention:
    """Decoding sequences in the attention kernel of prompt chunks, which gives each a whole query tile.

    The kernel takes as long as the slowest of: the chunk alone; one wave over the longest context; all work
    (the chunk's squares without rounding + ``per_context_token_s * T``); the same at
    ``reread_per_context_token_s``, less ``reread_free_s / n``, when query heads no longer share their reads.
    ``per_sequence_s`` and ``per_new_token_s`` (of the chunks) are added.
    """

    chunk: ChunkLine
    per_sequence_s: float
    per_new_token_s: float
    per_context_token_s: float
    reread_per_context_token_s: float
    reread_free_s: float

    def __post_init__(self) -> None:
        _require_times(self, tuple(field.name for field in fields(self)[1:]))

    @property
    def skewed(self) -> bool:
        """False: only total contexts were fitted."""
        return False

    def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
        """0: only total contexts were fitted."""
        return 0.0

    def mixed_decode_attention_s(
        self, decode_sequences: int, context_tokens: float, new_tokens: int, cached_tokens: int
    ) -> float:
        """Seconds that the decoding sequences add to the chunk alone."""
        if decode_sequences == 0:
            return 0.0
        chunk, tile = self.chunk, self.chunk.tile_tokens
        alone_s = chunk.squares_s(padded(new_tokens, tile), new_tokens, cached_tokens)
        work_s = chunk.squares_s(new_tokens, new_tokens, cached_tokens)
        wave_s = 2 * chunk.per_square_token_s * tile * context_tokens / decode_sequences
        shared_s = self.per_context_token_s * context_tokens
        reread_s = self.reread_per_context_token_s * context_tokens - self.reread_free_s / decode_sequences
        kernel_s = max(alone_s, wave_s, work_s + max(shared_s, reread_s))
        top_s = self.per_sequence_s * decode_sequences + self.per_new_token_s * new_tokens
        return top_s + kernel_s - alone_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledStepModel:
    """Lines per kind of operation. ``limits`` is the range answered, ``measured`` what the fit has seen."""

    dense: DenseLines
    decode: DecodeLine
    prefill: ChunkLine
    mixed: MixedAttention | None
    limits: StepLimits
    measured: StepLimits
    source: str
    error_band: str
    includes_overhead: bool = False
    labels: tuple[str, ...] = ()
    errors: StepErrors = ROUGH

    @property
    def interplay(self) -> Interplay | None:
        """The cost of mixed steps, if it was measured; else parts are added."""
        return self.mixed

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """One line for all tokens of the step, in either phase."""
        return self.dense.seconds(prefill_tokens + decode_sequences, prefill_sequences + decode_sequences)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """One or two linear pieces, to the end of the range."""
        return self.decode.pieces(decode_sequences, self.limits.total_context(decode_sequences))

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Whole waves over the cache and the chunk itself."""
        return self.prefill.seconds(new_tokens, cached_tokens)


def padded(tokens: int, tile_tokens: int) -> int:
    """``tokens`` rounded up to whole tiles."""
    return -(-tokens // tile_tokens) * tile_tokens
