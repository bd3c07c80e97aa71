"""Synthetic workloads that stand in for a trace file when there is none."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, short_number, whole_number
from traces.errors import TraceError
from traces.lengths import Knot, lengths_from_quantiles
from traces.streams import stream
from traces.workload import MAX_ROWS, NS_PER_S, Workload

# Measured on the 19,366 rows of AzureLLMInferenceTrace_conv.csv (Azure LLM inference trace 2023, CC-BY;
# github.com/Azure/AzurePublicDataset): numpy.quantile, rounded to whole tokens, and the mean.
CONV_REQUESTS: Final = 19_366
CONV_RATE_PER_S: Final = 5.53
CONV_GAP_CV: Final = 1.09
CONV_PROMPT_MEAN: Final = 1154.7
CONV_OUTPUT_MEAN: Final = 211.1
# (probability, prompt tokens, output tokens), dense where the file has steps.
_CONV_QUANTILES: Final = (
    (0, 2, 7),
    (0.01, 29, 16),
    (0.05, 181, 41),
    (0.1, 207, 54),
    (0.15, 372, 67),
    (0.2, 387, 77),
    (0.3, 403, 91),
    (0.35, 414, 96),
    (0.4, 703, 103),
    (0.45, 984, 113),
    (0.5, 1020, 129),
    (0.6, 1071, 177),
    (0.7, 1130, 384),
    (0.75, 1189, 395),
    (0.8, 1315, 400),
    (0.85, 1876, 411),
    (0.9, 2734, 424),
    (0.92, 4073, 429),
    (0.95, 4083, 451),
    (0.98, 4098, 540),
    (0.99, 4142, 601),
    (0.995, 4831, 643),
    (0.999, 6179, 954),
    (0.9999, 7668, 1000),
    (1, 14050, 1000),
)
CONV_PROMPT_KNOTS: Final[tuple[Knot, ...]] = tuple((p, prompt) for p, prompt, _ in _CONV_QUANTILES)
CONV_OUTPUT_KNOTS: Final[tuple[Knot, ...]] = tuple((p, output) for p, _, output in _CONV_QUANTILES)

_LONGEST_S: Final = 1e9  # 31 years, well inside int64 nanoseconds
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
    Not matched: the drift of the rate over minutes (the variance of the file's arrivals per 10 s is 4.0 times
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


def gamma_arrivals_ns(
    generator: np.random.Generator, count: int, rate_per_s: float, gap_cv: float
) -> NDArray[np.int64]:
    """``count`` arrivals in ns from 0 with Gamma gaps of mean 1 / ``rate_per_s`` and the given CV.

    Each gap is rounded before it is added: a longer trace begins with the shorter one to the nanosecond.
    """
    if not 1e-3 <= gap_cv <= 1e3:
        raise TraceError(f"gap_cv={gap_cv!r} is out of range: write a value from 0.001 to 1000")
    shape = gap_cv**-2
    gaps_s = generator.standard_gamma(shape, size=count - 1) / (shape * rate_per_s)
    if not gaps_s.sum() <= _LONGEST_S:
        raise TraceError(
            f"rate_per_s={rate_per_s!r} spreads {count} requests over more than 31 years: write a larger"
            " trace.rate_per_s or trace.utilization"
        )
    gaps_ns = np.rint(gaps_s * NS_PER_S).astype(np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(gaps_ns)))
