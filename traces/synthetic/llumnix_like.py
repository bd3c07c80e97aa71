"""The seven workloads of the Llumnix paper (OSDI 2024, section 6.1): lengths drawn as it publishes them."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, whole_number
from traces.errors import TraceError
from traces.streams import SEED_MAX
from traces.synthetic.arrivals import gamma_ns, gamma_shape, profile_arrivals_ns
from traces.synthetic.drawn import DEFAULT_REQUESTS, count_of, drawn_workload, recipe
from traces.synthetic.length_tables import length_pair
from traces.synthetic.lengths import ZipfLengths
from traces.synthetic.rate_profile import constant
from traces.workload import MAX_ROWS, Workload

# The very samples that the Llumnix artefact draws: lengths and gaps of its five generated traces.
# It seeds numpy's legacy generator once and draws all prompt lengths, all output lengths and then gap by
# gap, 10,000 of each (benchmark_throughput.py of AlibabaPAI/llumnix, branch osdi24ae:
# gen_random_response_lens, get_wait_time; described in our words). Seed 0 gives what the paper ran: P50 to
# P99 of Table 1, to the token.
# Who has a high priority comes from Python's own generator, the same Mersenne Twister, seeded alike: after
# one number for every token of all prompts and one for the session of every request it draws one for each
# request (gen_prompt_ids, gen_random_session_id, async_request_gen).

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
        ratio_text = f"{ratio:g}" if is_number else repr(ratio)
        raise TraceError(f"trace.priority_ratio={ratio_text} is not a share: write a number from 0 to 1")
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


LABEL: Final = "synthetic stand-in for Llumnix {}: lengths as published, input and output independent"
_TRACES: Final = {
    "llumnix_ss": ("ss", "S-S"),
    "llumnix_mm": ("mm", "M-M"),
    "llumnix_ll": ("ll", "L-L"),
    "llumnix_sl": ("sl", "S-L"),
    "llumnix_ls": ("ls", "L-S"),
    "llumnix_sharegpt": ("sharegpt", "ShareGPT"),
    "llumnix_burstgpt": ("burstgpt", "BurstGPT"),
}
FIGURE_11_RATES_PER_S: Final = {
    "llumnix_sharegpt": (7.0, 7.25, 7.5, 7.75, 8.0),
    "llumnix_burstgpt": (7.5, 7.75, 8.0, 8.25, 8.5),
    "llumnix_ss": (32.0, 33.0, 34.0, 35.0, 36.0),
    "llumnix_mm": (7.4, 7.5, 7.6, 7.7, 7.8),
    "llumnix_ll": (2.6, 2.7, 2.8, 2.9, 3.0),
    "llumnix_sl": (4.1, 4.15, 4.2, 4.25, 4.3),
    "llumnix_ls": (10.0, 12.0, 14.0, 16.0, 18.0),
}
"""Requests per second of Figure 11 on 16 instances (artefact; S-L, L-S: between the ends ours)."""


def llumnix_like(
    name: str,
    seed: int = 0,
    requests: int = DEFAULT_REQUESTS,
    rate_per_s: float = 1.0,
    *,
    gap_cv: float = 1.0,
    priority_ratio: float = 0.0,
) -> Workload:
    """The trace ``name``, one of ``_TRACES``: Gamma arrivals (gap_cv 1, the default, is Poisson).

    S, M and L are samples as the paper's artefact draws them, with ``seed`` 0 its very own; the lengths of
    the other two are drawn from its Table 1. 1 request per second is ours; the rates of Figure 11 are
    ``FIGURE_11_RATES_PER_S``. priority_ratio: of the samples, drawn as the artefact draws it, has priority 1.
    Raises TraceError on bad parameters.
    """
    lengths, title = _TRACES[name]
    count, priority_ratio = count_of(requests), share_of_high_priority(priority_ratio)
    label = LABEL.format(title)
    parameters = {"requests": count, "rate_per_s": rate_per_s, "gap_cv": gap_cv}
    prompt, output = length_pair(lengths)
    if not (isinstance(prompt, ZipfLengths) and isinstance(output, ZipfLengths)):
        if priority_ratio:
            raise TraceError(
                f"trace.priority_ratio does not apply to trace={name}: write trace.high_priority_share="
                f"{priority_ratio:g} instead"
            )
        arrival_ns = gamma_ns(seed, f"{name}/arrivals", count, rate_per_s, gap_cv)
        return drawn_workload(
            name, seed, arrival_ns=arrival_ns, lengths=lengths, label=label, parameters=parameters
        )
    operational, prompt_tokens, output_tokens = artefact_sample(seed, count, gap_cv, prompt, output)
    labels, priority = [label], None
    if priority_ratio:
        parameters["priority_ratio"] = priority_ratio
        priority = artefact_priorities(seed, count, priority_ratio, prompt, output)
        labels.append(f"{priority.sum()} of {count} requests drawn to have a high priority (seed {seed})")
    return Workload(
        arrival_ns=profile_arrivals_ns(operational, constant(rate_per_s)),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        name=name,
        source=recipe(name, seed, parameters),
        priority=priority,
        labels=tuple(labels),
        rows_read=count,
    )


def _of(name: str) -> Callable[..., Workload]:
    """The function of one trace: named and described, which a partial one would not be."""

    def draw(
        seed: int = 0,
        requests: int = DEFAULT_REQUESTS,
        rate_per_s: float = 1.0,
        gap_cv: float = 1.0,
        priority_ratio: float = 0.0,
    ) -> Workload:
        return llumnix_like(
            name=name,
            seed=seed,
            requests=requests,
            rate_per_s=rate_per_s,
            gap_cv=gap_cv,
            priority_ratio=priority_ratio,
        )

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"Llumnix {_TRACES[name][1]} (OSDI 2024): lengths as published, arrivals Gamma or Poisson."
    return draw


llumnix_ss = _of("llumnix_ss")
llumnix_mm = _of("llumnix_mm")
llumnix_ll = _of("llumnix_ll")
llumnix_sl = _of("llumnix_sl")
llumnix_ls = _of("llumnix_ls")
llumnix_sharegpt = _of("llumnix_sharegpt")
llumnix_burstgpt = _of("llumnix_burstgpt")
