"""The stand-in for the Azure 2023 code trace: surges of seconds, pauses and long silences."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import LONGEST_S
from traces.synthetic.drawn import count_of, drawn_workload
from traces.synthetic.length_tables import CODE_REQUESTS
from traces.synthetic.rate_profile import Floats
from traces.workload import NS_PER_S, Workload

# All measured on the 8,819 rows of AzureLLMInferenceTrace_code.csv (Azure LLM inference trace 2023, CC-BY;
# github.com/Azure/AzurePublicDataset). A silence is a gap above 10 s, a pause one of 1 to 10 s; what is left
# when both are cut out is the busy time, looked at in seconds. Quantiles by numpy.quantile, rounded.
CODE_DURATION_S: Final = 3435.948
CODE_RATE_PER_S: Final = (CODE_REQUESTS - 1) / CODE_DURATION_S
SILENCES: Final = 45
PAUSES: Final = 95
BUSY_S: Final = 814
_P: Final = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1)
_SILENCE_S: Final = (10.1, 13.8, 17.3, 23.1, 28.1, 38.5, 41.5, 50.5, 79.3, 89.9, 132.6, 163.5, 217.2)
_SILENCES_S: Final = 2377.4
_PAUSE_S: Final = (1.0, 1.1, 1.28, 1.59, 1.76, 2.06, 2.4, 2.71, 3.69, 3.79, 6.31, 7.71, 8.41)
_PAUSES_S: Final = 258.8
# Requests in a busy second; never none, since a second without one is part of a pause. The last two are 5 and
# 6 above the quantiles (51, 65): busy seconds here begin anywhere within a second of the clock, and only so
# the most in one clock second, 67 in the file, comes out as there.
_BUSY_P: Final = (
    0,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.85,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
    0.9965,
    1,
)
_BUSY_REQUESTS: Final = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 18, 21, 26, 32, 37, 41, 56, 71)
# The counts of busy seconds 1, 2, 3, 5, 10 apart correlate by .61, .43, .31, .18, .07. The order below comes
# from a hidden Gaussian walk of memory _MEMORY per second plus white noise of share _NOISE; both were tried
# until the drawn counts had these correlations and the file's 10-second counts.
_MEMORY: Final = 0.75
_NOISE: Final = 0.15
# The file's busiest 10 s hold 415 requests, most of its busiest seconds among them, and no pause: one great
# surge, which every round has once. Its seconds are lifted by so many standard deviations of the walk, most
# in the middle, as the file's are.
_SURGE: Final = (3.0, 4.0, 5.0, 6.0, 6.0, 5.0, 4.0, 3.0)
_SURGE_S: Final = len(_SURGE)
# Gaps up to 1 s, in seconds: many requests arrive as a handful at once, then a tenth of a second nothing.
_GAP_P: Final = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1)
_GAP_S: Final = (0, 0.0001, 0.0002, 0.0012, 0.0031, 0.014, 0.06, 0.094, 0.1, 0.149, 0.25, 0.36, 0.57, 1.0)
CODE_LABEL: Final = (
    "synthetic stand-in for azure_code: surges, pauses and silences in random order, lengths independent"
)


def azure_code_like(
    seed: int = 0, requests: int = CODE_REQUESTS, rate_per_s: float = CODE_RATE_PER_S
) -> Workload:
    """Requests shaped like the Azure 2023 code trace; the first arrives at 0.

    A round is 814 busy seconds of 8,819 requests, cut by 45 silences and 95 pauses at random places. Lengths
    of silences and pauses and the requests per busy second are one draw from each slice of the measured
    distributions, so that every seed has the file's mean gap and CV; only the order is left to chance, the
    busy seconds' with the file's correlation from second to second. More requests go on with another round
    after one more silence, fewer are a prefix. Another ``rate_per_s`` stretches the time axis, silences
    too. Not matched: what the file's own hour has at which minute, and pauses that follow pauses.
    Raises TraceError on bad parameters.
    """
    count = count_of(requests)
    rate = positive_number("trace.rate_per_s", rate_per_s)
    gaps_s = _gaps_s(seed, count) * (CODE_RATE_PER_S / rate)
    if not gaps_s.sum() <= LONGEST_S:
        raise TraceError(
            f"rate_per_s={rate_per_s!r} spreads {count} requests over more than 31 years: write a larger"
            " trace.rate_per_s or trace.utilization"
        )
    gaps_ns = np.rint(gaps_s * NS_PER_S).astype(np.int64)
    arrival_ns = np.concatenate((np.zeros(1, np.int64), np.cumsum(gaps_ns)))
    parameters = {"requests": count, "rate_per_s": rate}
    return drawn_workload(
        "azure_code_like",
        seed,
        arrival_ns=arrival_ns,
        lengths="azure_code",
        label=CODE_LABEL,
        parameters=parameters,
    )


def _gaps_s(seed: int, count: int) -> Floats:
    """The ``count - 1`` gaps after each request but the last, in seconds at the file's rate."""
    draws = {
        part: stream(seed, f"azure_code_like/{part}")
        for part in ("silences", "pauses", "places", "surges", "gaps")
    }
    rounds = [_round_s(draws) for _ in range(-(-count // CODE_REQUESTS))]
    return np.concatenate(rounds)[: count - 1]


def _round_s(draws: dict[str, np.random.Generator]) -> Floats:
    """The gap after each of one round's requests; the last one is the silence before the next round."""
    surge = int(draws["surges"].integers(BUSY_S - _SURGE_S))
    requests = _busy_requests(draws["surges"], surge)
    gaps_s = _busy_gaps_s(requests, draws["gaps"])
    last = np.cumsum(requests) - 1  # of each busy second
    places = draws["places"].permutation(BUSY_S - 1)
    places = places[(places < surge) | (places >= surge + _SURGE_S - 1)][: SILENCES + PAUSES]
    gaps_s[last[places[:SILENCES]]] = _one_per_slice(_P, _SILENCE_S, SILENCES, _SILENCES_S, draws["silences"])
    gaps_s[last[places[SILENCES:]]] = _one_per_slice(_P, _PAUSE_S, PAUSES, _PAUSES_S, draws["pauses"])
    gaps_s[-1] = np.interp(draws["silences"].random(), _P, _SILENCE_S)
    return gaps_s


def _one_per_slice(
    probability: tuple[float, ...],
    values: tuple[float, ...],
    count: int,
    total: float,
    generator: np.random.Generator,
) -> Floats:
    """``count`` values, one from each equal slice of a distribution given by quantiles, in random order.

    They are scaled to the measured ``total``, which rounded quantiles miss by a few per cent.
    """
    drawn = np.interp((np.arange(count) + generator.random(count)) / count, probability, values)
    return np.asarray(generator.permutation(drawn) * (total / drawn.sum()), np.float64)


def _busy_requests(generator: np.random.Generator, surge: int) -> NDArray[np.int64]:
    """Requests in each busy second of a round: a fixed set of counts, ordered by a hidden Gaussian walk.

    surge: the busy second in which the great surge begins.
    """
    middle = (np.arange(BUSY_S) + 0.5) / BUSY_S
    ideal = np.interp(middle, _BUSY_P, _BUSY_REQUESTS)
    spread = np.diff(np.rint(np.cumsum(ideal) * (CODE_REQUESTS / ideal.sum())), prepend=0)
    counts = np.sort(np.maximum(spread, 1)).astype(np.int64)
    steps = generator.standard_normal((BUSY_S, 2))
    walk, hidden = np.empty(BUSY_S), 0.0
    for second, step in enumerate(steps[:, 0] * np.sqrt(1 - _MEMORY**2)):
        hidden = _MEMORY * hidden + step
        walk[second] = hidden
    mixed = np.sqrt(1 - _NOISE) * walk + np.sqrt(_NOISE) * steps[:, 1]
    mixed[surge : surge + _SURGE_S] += _SURGE
    return counts[np.argsort(np.argsort(mixed))]


def _busy_gaps_s(requests: NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """The gap after each request of the busy time; those of one busy second add up to a second.

    The gaps of one second take one draw from each equal slice of the distribution, in random order.
    """
    total, first = int(requests.sum()), np.cumsum(requests) - requests
    second = np.repeat(np.arange(len(requests)), requests)
    place = np.empty(total)
    place[np.lexsort((generator.random(total), second))] = np.arange(total) - first[second]
    drawn = np.interp((place + generator.random(total)) / requests[second], _GAP_P, _GAP_S) + 1e-6
    return np.asarray(drawn / np.add.reduceat(drawn, first)[second], np.float64)
