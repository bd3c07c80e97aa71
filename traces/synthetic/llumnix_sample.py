"""The very samples that the Llumnix artefact draws: lengths and gaps of its five generated traces.

It seeds numpy's legacy generator once and draws all prompt lengths, all output lengths and then gap by gap,
10,000 of each (benchmark_throughput.py of AlibabaPAI/llumnix, branch osdi24ae: gen_random_response_lens,
get_wait_time; described in our words). Seed 0 gives what the paper ran: P50 to P99 of Table 1, to the token.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, whole_number
from traces.streams import SEED_MAX
from traces.synthetic.arrivals import gamma_shape
from traces.synthetic.lengths import ZipfLengths
from traces.workload import MAX_ROWS

ARTEFACT_SEED: Final = 0xCADE
ROWS: Final = 10_000


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
