"""The very samples that the Llumnix artefact draws: lengths and gaps of its five generated traces.

It seeds numpy's legacy generator once and draws all prompt lengths, all output lengths and then gap by gap,
10,000 of each (benchmark_throughput.py of AlibabaPAI/llumnix, branch osdi24ae: gen_random_response_lens,
get_wait_time; described in our words). Seed 0 gives what the paper ran: P50 to P99 of Table 1, to the token.

Who has a high priority comes from Python's own generator, the same Mersenne Twister, seeded alike: after one
number for every token of all prompts and one for the session of every request it draws one for each request
(gen_prompt_ids, gen_random_session_id, async_request_gen).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, whole_number
from traces.errors import TraceError
from traces.streams import SEED_MAX
from traces.synthetic.arrivals import gamma_shape
from traces.synthetic.lengths import ZipfLengths
from traces.workload import MAX_ROWS

ARTEFACT_SEED: Final = 0xCADE
ROWS: Final = 10_000
_TOKEN_IDS: Final = 32_000 - 10 + 1  # random.randint(10, tokenizer.vocab_size), LLaMA's


def artefact_sample(
    seed: int, requests: int, gap_cv: float, prompt: ZipfLengths, output: ZipfLengths
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(arrivals in units of the mean gap, the first at 0; prompt tokens; output tokens) of ``requests`` rows.

    seed: 0 is the artefact's own sample, others are samples of the same kind. Rows after the first 10,000
    come from further samples, so that fewer rows are a prefix of more. Raises TraceError on bad values.
    """
    count = whole_number("trace.requests", requests, 1, MAX_ROWS)
    shape = gamma_shape(positive_number("gap_cv", gap_cv))
    samples = [_sample(_generator(seed, block), shape, prompt, output) for block in range(-(-count // ROWS))]
    gaps, prompts, outputs = (np.concatenate(columns)[:count] for columns in zip(*samples))
    return np.concatenate(([0.0], np.cumsum(gaps[:-1]))), prompts, outputs


def share_of_high_priority(ratio: object) -> float:
    """From 0 to 1. Raises TraceError for anything else."""
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= 1:
        is_number = isinstance(ratio, int | float) and not isinstance(ratio, bool)
        told = f"{ratio:g}" if is_number else repr(ratio)
        raise TraceError(f"trace.priority_ratio={told} is not a share: write a number from 0 to 1")
    return float(ratio)


def artefact_priorities(
    seed: int, requests: int, ratio: float, prompt: ZipfLengths, output: ZipfLengths
) -> NDArray[np.int64]:
    """1 for each of ``requests`` rows that has a high priority, else 0; seed 0: the artefact's own choice."""
    count = whole_number("trace.requests", requests, 1, MAX_ROWS)
    ratio = share_of_high_priority(ratio)
    chosen = []
    for block in range(-(-count // ROWS)):
        if seed == 0 and block == 0:
            draw = np.random.RandomState([ARTEFACT_SEED])  # as Python's random.seed(ARTEFACT_SEED)
            _pass_by(draw, int(artefact_sample(seed, ROWS, 1.0, prompt, output)[1].sum()))
        else:
            draw = np.random.RandomState([ARTEFACT_SEED, seed & 0xFFFFFFFF, seed >> 32, block, 1])
        chosen.append(draw.random_sample(ROWS) < ratio)
    return np.concatenate(chosen)[:count].astype(np.int64)


def _pass_by(draw: np.random.RandomState, prompt_tokens: int) -> None:
    """The numbers that make prompts and sessions are drawn: of a token as randint does, of 15 bits each."""
    left = prompt_tokens
    while left:
        numbers = draw.randint(0, 1 << 32, size=left, dtype=np.uint32) >> 17
        left -= int((numbers < _TOKEN_IDS).sum())
    draw.random_sample(ROWS)


def _generator(seed: int, block: int) -> np.random.RandomState:
    checked = whole_number("seed", seed, 0, SEED_MAX)
    if checked == 0 and block == 0:
        return np.random.RandomState(ARTEFACT_SEED)
    return np.random.RandomState([ARTEFACT_SEED, checked & 0xFFFFFFFF, checked >> 32, block])


def _sample(
    generator: np.random.RandomState, shape: float, prompt: ZipfLengths, output: ZipfLengths
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """One sample, in the artefact's order of draws: each side is scaled by the mean of its own ranks."""
    lengths = []
    for table in (prompt, output):
        ranks = generator.choice(np.arange(1, table.ranks + 1), size=ROWS, p=table.probabilities())
        lengths.append(table.tokens_of(ranks, float(ranks.mean())))
    return generator.standard_gamma(shape, size=ROWS) / shape, lengths[0], lengths[1]
