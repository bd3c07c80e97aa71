"""The stand-in for the Azure 2023 conversation trace."""

from typing import Final

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
from traces.workload import MAX_ROWS, Workload

# Measured on the same file as the length tables.
CONV_RATE_PER_S: Final = 5.53
CONV_GAP_CV: Final = 1.09
STAND_IN_LABEL: Final = "synthetic stand-in for azure_conv: stationary, lengths independent"


def azure_conv_like(
    seed: int,
    requests: int = CONV_REQUESTS,
    rate_per_s: float = CONV_RATE_PER_S,
    gap_cv: float = CONV_GAP_CV,
) -> Workload:
    """Requests shaped like the Azure 2023 conversation trace; the first arrives at 0.

    seed: 0 to 2**64 - 1. requests: rows. rate_per_s: mean arrivals per second. gap_cv: coefficient of
    variation of the Gamma gaps (1 is Poisson). Fewer requests are a prefix of more; another rate stretches
    the gaps of the same draws. Matched: gap mean and CV, the quantiles and means of both lengths.
    Not matched: the drift of the rate over minutes (the variance of the file's arrivals per 10 s is 3.9 times
    their mean, here about gap_cv**2), and the file's weak length correlation (-0.11).
    Raises TraceError on bad parameters.
    """
    count = whole_number("trace.requests", requests, 1, MAX_ROWS)
    rate = positive_number("trace.rate_per_s", rate_per_s)
    cv = positive_number("gap_cv", gap_cv)
    return Workload(
        arrival_ns=gamma_arrivals_ns(stream(seed, "azure_conv_like/arrivals"), count, rate, cv),
        prompt_tokens=lengths_from_quantiles(
            stream(seed, "azure_conv_like/prompt_tokens"), count, CONV_PROMPT_KNOTS, CONV_PROMPT_MEAN
        ),
        output_tokens=lengths_from_quantiles(
            stream(seed, "azure_conv_like/output_tokens"), count, CONV_OUTPUT_KNOTS, CONV_OUTPUT_MEAN
        ),
        name="azure_conv_like",
        source=(
            f"synthetic azure_conv_like seed={int(seed)} requests={count}"
            f" rate_per_s={short_number(rate)} gap_cv={short_number(cv)}"
        ),
        labels=(STAND_IN_LABEL,),
        rows_read=count,
    )
