"""The steps to measure: prompts by tokens, decodes by sequences and contexts, and both together."""

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

# Contexts of one sequence, and prompts, in tokens; those above the engine's limits are left out.
_CONTEXTS: Final = (16, 128, 512, 1024)
_PROMPTS: Final = (8, 16, 32, 64, 96, 128, 192)
# Live passes run whole prompts, however long.
_WHOLE: Final = (512, 1024)
_MIXED: Final = (32, 128)
_CHUNKS: Final = (2, 4)
_LEAST_LAST: Final = 32


class Step(NamedTuple):
    """The contents of a step: the columns of a whole-step profile (docs/how-to/PROFILES.md) without its
    time."""

    prefill_tokens: int
    prefill_sequences: int
    cached_tokens: int
    decode_sequences: int
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """``units`` times ``repeats`` pieces of work; a worker takes the next one when it has finished its own.

    ``contexts``: tokens of each sequence, one unit per context; unit 0 is prompts alone. ``sequences``: how
    many decode, descending. ``prompts``: tokens. ``batch_tokens``: the most in one step. ``last_chunks``:
    tokens of a chunk after ``batch_tokens``. ``steps``: decode steps of each kind.
    """

    contexts: tuple[int, ...]
    sequences: tuple[int, ...]
    prompts: tuple[int, ...]
    mixed: tuple[int, ...]
    chunks: tuple[int, ...]
    last_chunks: tuple[int, ...]
    batch_tokens: int
    steps: int
    repeats: int

    @property
    def decoded(self) -> int:
        """The most tokens that a sequence decodes in a unit."""
        # Each number of sequences runs one step more than is timed; the first also has steps with prompts.
        return len(self.sequences) * (self.steps + 1) + len(self.mixed) + 1

    @property
    def held_tokens(self) -> int:
        """Tokens in a worker's memory at the end of the largest unit."""
        return self.sequences[0] * (self.contexts[-1] + self.decoded) + 2 * self.batch_tokens

    @property
    def units(self) -> tuple[int, ...]:
        """Prompts alone, then each context."""
        return (0, *self.contexts)

    def as_dict(self) -> dict[str, Any]:
        """Return a dict, to compare with the plan of a calibration that was stopped."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }


def plan_of(max_seqs: int, batch_tokens: int, kv_tokens: int, repeats: int, quick: bool) -> CalibrationPlan:
    """Plan all steps that an engine with these limits may run: contexts of ``kv_tokens`` in total.

    ``quick``: few points, for a quick look or a test.
    """
    longest = max(-(-kv_tokens // max_seqs), _CONTEXTS[0])
    prompts = tuple(length for length in _PROMPTS if length < batch_tokens)
    whole = tuple(sorted({*(chunk for chunk in _WHOLE if batch_tokens < chunk < longest), longest}))
    powers = {1 << at for at in range(max_seqs.bit_length())}
    sequences = (max_seqs, 1) if quick else sorted(powers | {max_seqs}, reverse=True)
    contexts = tuple(sorted({*(length for length in _CONTEXTS if length < longest), longest}))
    if quick:
        contexts, prompts = tuple(dict.fromkeys((contexts[0], contexts[-1]))), prompts[1:4:2]
        whole = whole[-1:]
    return CalibrationPlan(
        contexts=contexts,
        sequences=tuple(dict.fromkeys(sequences)),
        prompts=tuple(sorted({*prompts, batch_tokens, *whole})),
        mixed=tuple(tokens for tokens in _MIXED if tokens <= batch_tokens)[: 1 if quick else None],
        chunks=tuple(tokens for tokens in _CHUNKS if 16 * tokens <= batch_tokens)[: 1 if quick else None],
        last_chunks=tuple(
            length for length in prompts if length >= _LEAST_LAST and batch_tokens + length < longest
        ),
        batch_tokens=batch_tokens,
        steps=4 if quick else 12,
        repeats=repeats,
    )
