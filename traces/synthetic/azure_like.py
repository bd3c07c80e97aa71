"""The stand-in for the Azure 2023 conversation trace."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, short_number, whole_number
from traces.streams import stream
from traces.synthetic.arrivals import gamma_arrivals_ns
from traces.synthetic.length_tables import (
    CONV_OUTPUT_KNOTS,
    CONV_OUTPUT_MEAN,
    CONV_PROMPT_KNOTS,
    CONV_PROMPT_MEAN,
    CONV_REQUESTS,
)
from traces.synthetic.lengths import lengths_from_quantiles
from traces.synthetic.rate_stages import staged_ns
from traces.synthetic.rate_words import stages_of
from traces.workload import MAX_ROWS, Workload

# Measured on the same file as the length tables.
CONV_RATE_PER_S: Final = 5.53
CONV_GAP_CV: Final = 1.09
STAND_IN_LABEL: Final = "synthetic stand-in for azure_conv: stationary, lengths independent"
STAGES_LABEL: Final = "synthetic, lengths of azure_conv: arrivals in stages of rates, lengths independent"


def azure_conv_like(
    seed: int,
    requests: int | None = None,
    rate_per_s: float = CONV_RATE_PER_S,
    gap_cv: float = CONV_GAP_CV,
    *,
    rates: str | None = None,
) -> Workload:
    """Requests shaped like the Azure 2023 conversation trace; the first arrives at 0.

    seed: 0 to 2**64 - 1. requests: rows; None: as many as the file has. rate_per_s: mean arrivals per second.
    gap_cv: coefficient of variation of the Gamma gaps (1 is Poisson). Fewer requests are a prefix of more;
    another rate stretches the gaps of the same draws. Matched: gap mean and CV, the quantiles and means of
    both lengths. Not matched: the drift of the rate over minutes (the variance of the file's arrivals per
    10 s is 3.9 times their mean, here about gap_cv**2), and the file's weak length correlation (-0.11).
    rates: stages with rates of their own instead (``rate_words``); the trace ends with the last one, or
    after ``requests`` if that comes first, and the first request arrives when it is drawn.
    Raises TraceError on bad parameters.
    """
    cv = positive_number("gap_cv", gap_cv)
    if rates is not None:
        return _in_stages(seed, requests, rates, cv)
    count = whole_number("trace.requests", CONV_REQUESTS if requests is None else requests, 1, MAX_ROWS)
    rate = positive_number("trace.rate_per_s", rate_per_s)
    return _with_arrivals(
        seed,
        gamma_arrivals_ns(stream(seed, "azure_conv_like/arrivals"), count, rate, cv),
        {"requests": count, "rate_per_s": short_number(rate), "gap_cv": short_number(cv)},
        (STAND_IN_LABEL,),
    )


def _in_stages(seed: int, requests: int | None, rates: str, gap_cv: float) -> Workload:
    """Draw arrivals along stages of rates."""
    stages = stages_of(rates)
    arrival_ns = staged_ns(seed, "azure_conv_like/arrivals", requests, stages, gap_cv)
    words: dict[str, Any] = {} if requests is None else {"requests": requests}
    words |= {"rates": "".join(rates.split()), "gap_cv": short_number(gap_cv)}
    return _with_arrivals(seed, arrival_ns, words, (STAGES_LABEL, *stages.labels))


def _with_arrivals(
    seed: int, arrival_ns: NDArray[np.int64], words: dict[str, Any], labels: tuple[str, ...]
) -> Workload:
    """The workload of these arrivals. words: the parameters that give it again."""
    count = len(arrival_ns)
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=lengths_from_quantiles(
            stream(seed, "azure_conv_like/prompt_tokens"), count, CONV_PROMPT_KNOTS, CONV_PROMPT_MEAN
        ),
        output_tokens=lengths_from_quantiles(
            stream(seed, "azure_conv_like/output_tokens"), count, CONV_OUTPUT_KNOTS, CONV_OUTPUT_MEAN
        ),
        name="azure_conv_like",
        source=" ".join(
            (f"synthetic azure_conv_like seed={int(seed)}", *(f"{key}={word}" for key, word in words.items()))
        ),
        labels=labels,
        rows_read=count,
    )
