"""The very samples that the Llumnix artefact draws: lengths and gaps of its five generated traces.

It seeds numpy's legacy generator once and draws all prompt lengths, all output lengths and then gap by gap,
10,000 of each (benchmark_throughput.py of AlibabaPAI/llumnix, branch osdi24ae: gen_random_response_lens,
get_wait_time; described in our words). Seed 0 gives what the paper ran: P50 to P99 of Table 1, to the token.

Who has a high priority comes from Python's own generator, seeded alike: after one number for every token of
all prompts and one for the session of every request it draws one for each request (gen_prompt_ids,
gen_random_session_id, async_request_gen).
"""

from random import Random
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


def artefact_priorities(
    seed: int, requests: int, ratio: float, prompt: ZipfLengths, output: ZipfLengths
) -> NDArray[np.int64]:
    """1 for each of ``requests`` rows that has a high priority, else 0; seed 0: the artefact's own choice."""
    count = whole_number("trace.requests", requests, 1, MAX_ROWS)
    if not 0 <= ratio <= 1:
        raise TraceError(f"trace.priority_ratio={ratio:g} is no share: write a number from 0 to 1")
    chosen: list[int] = []
    for block in range(-(-count // ROWS)):
        draw = Random(ARTEFACT_SEED)
        if seed == 0 and block == 0:
            _pass_by(draw, int(artefact_sample(seed, ROWS, 1.0, prompt, output)[1].sum()))
        else:
            draw = Random(f"{ARTEFACT_SEED}/{seed}/{block}")
        chosen += [int(draw.random() < ratio) for _ in range(ROWS)]
    return np.array(chosen[:count], dtype=np.int64)


def _pass_by(draw: Random, prompt_tokens: int) -> None:
    """The numbers that make prompts and sessions are drawn; a token's as randint does."""
    bits, width = draw.getrandbits, _TOKEN_IDS.bit_length()
    for _ in range(prompt_tokens):
        while bits(width) >= _TOKEN_IDS:
            pass
    for _ in range(ROWS):
        draw.random()


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
