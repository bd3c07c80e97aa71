"""What a world has measured of a model's requests between two scrapes, as counters of servers tell it.

Only a world has the times of tokens and the lengths of outputs. A driver answers the question (see
``serving.vocabulary.step_counts``), and the journal keeps the answer as whole numbers.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from serving.vocabulary.fact import fact

SHARES: Final = (0.5, 0.9, 0.99)


@fact
class Latency:
    """A latency of several requests; all is 0 without any.

    ``count``: requests. ``mean_ns``, ``p50_ns``, ``p90_ns``, ``p99_ns``: the mean, and the least values that
    50, 90, 99 % do not exceed.
    """

    count: int = 0
    mean_ns: int = 0
    p50_ns: int = 0
    p90_ns: int = 0
    p99_ns: int = 0


@fact
class LengthCount:
    """A bucket of finished requests.

    ``requests``: how many had at most these lengths. ``prompt_tokens``, ``output_tokens``: powers of two.
    """

    prompt_tokens: int
    output_tokens: int
    requests: int


@fact
class Measured:
    """What was measured in a window.

    ``ttft``: of requests whose first token came in it. ``tpot``: time per output token after the first, of
    requests that finished. ``finished``, ``prompt_tokens``, ``output_tokens``: those requests and their
    tokens. ``lengths``: how many of them had which lengths.
    """

    ttft: Latency = Latency()
    tpot: Latency = Latency()
    finished: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    lengths: tuple[LengthCount, ...] = ()


NOTHING: Final = Measured()
_FIXED: Final = 13  # numbers before those of the lengths


def latency_of(values_ns: Iterable[int]) -> Latency:
    """The latency of requests that had these."""
    ordered = sorted(values_ns)
    count = len(ordered)
    if not count:
        return Latency()
    p50_ns, p90_ns, p99_ns = (ordered[ceil(share * count) - 1] for share in SHARES)
    return Latency(count, sum(ordered) // count, p50_ns, p90_ns, p99_ns)


def length_bound(tokens: int) -> int:
    """The least power of two that is not below this number of tokens."""
    return 1 << max(0, tokens - 1).bit_length()


def numbers_of(measured: Measured) -> list[int]:
    """As a journal keeps it: ``measured_of`` reads it back."""
    ttft, tpot = measured.ttft, measured.tpot
    numbers = [ttft.count, ttft.mean_ns, ttft.p50_ns, ttft.p90_ns, ttft.p99_ns]
    numbers += [tpot.count, tpot.mean_ns, tpot.p50_ns, tpot.p90_ns, tpot.p99_ns]
    numbers += [measured.finished, measured.prompt_tokens, measured.output_tokens, len(measured.lengths)]
    for bucket in measured.lengths:
        numbers += [bucket.prompt_tokens, bucket.output_tokens, bucket.requests]
    return numbers


def measured_of(numbers: Sequence[int]) -> tuple[Measured, int]:
    """Read ``numbers_of``'s answer from the front of ``numbers``; returns it and how many it took.

    Raises ValueError if there are too few.
    """
    if len(numbers) <= _FIXED or len(numbers) < (end := _FIXED + 1 + 3 * numbers[_FIXED]):
        raise ValueError("the journal line has too few numbers for what was measured")
    lengths = [LengthCount(*numbers[at : at + 3]) for at in range(_FIXED + 1, end, 3)]
    ttft, tpot = Latency(*numbers[:5]), Latency(*numbers[5:10])
    measured = Measured(
        ttft,
        tpot,
        finished=numbers[10],
        prompt_tokens=numbers[11],
        output_tokens=numbers[12],
        lengths=tuple(lengths),
    )
    return measured, end
