"""What servers' own counters say of their requests: the increase over a window, as Prometheus computes it.

Servers count since they started, in histograms of Prometheus. The increase over a window is the difference of
two pages of metrics, those read last before its end and before its begin. Percentiles are interpolated within
a bucket, as by histogram_quantile.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from realexec.http.metrics_text import LARGEST, Sample
from serving.vocabulary.measured import SHARES, Latency, Measured
from serving.vocabulary.units import NS_PER_S

TTFT: Final = "ttft"
TPOT: Final = "tpot"
PROMPTS: Final = "prompts"
OUTPUTS: Final = "outputs"
# By kind of server: the histograms of a metric, the first that the server has. SGLang counts no lengths per
# request.
HISTOGRAMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "vllm": {
        TTFT: ("vllm:time_to_first_token_seconds",),
        TPOT: ("vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds"),
        PROMPTS: ("vllm:request_prompt_tokens",),
        OUTPUTS: ("vllm:request_generation_tokens",),
    },
    "sglang": {
        TTFT: ("sglang:time_to_first_token_seconds",),
        TPOT: ("sglang:time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
    },
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """``name``: the metric's; ``limits``: upper limits of buckets; ``counts``: values up to each limit."""

    name: str
    limits: tuple[float, ...]
    counts: tuple[float, ...]
    count: float
    total: float

    def plus(self, other: "Histogram", sign: int = 1) -> "Histogram":
        """The sum with another of the same buckets, or the difference; of other buckets: this one."""
        if self.limits != other.limits:
            return self
        return Histogram(
            self.name,
            self.limits,
            tuple([mine + sign * its for mine, its in zip(self.counts, other.counts, strict=True)]),
            self.count + sign * other.count,
            self.total + sign * other.total,
        )

    def quantile(self, share: float) -> float:
        """The value that this share of the values does not exceed; beyond all limits the largest limit."""
        rank, below, lower = share * self.count, 0.0, 0.0
        for limit, count in zip(self.limits, self.counts, strict=True):
            if count >= rank and count > below:
                return lower + (limit - lower) * (rank - below) / (count - below)
            below, lower = count, limit
        return lower

    def latency(self) -> Latency:
        """Of values in seconds."""
        count = round(self.count)
        if count <= 0:
            return Latency()
        values = [self.total / self.count, *[self.quantile(share) for share in SHARES]]
        return Latency(count, *[max(0, round(value * NS_PER_S)) for value in values])


NO_VALUES: Final = Histogram("", (), (), 0.0, 0.0)
Counters = Mapping[str, Histogram]


def counters_of(kind: str, samples: Sequence[Sample]) -> Counters:
    """The histograms on a page of metrics, those of several engines added up; only those that it has."""
    wanted = HISTOGRAMS.get(kind, {})
    names = {name for candidates in wanted.values() for name in candidates}
    found = _histograms(names, samples)
    return {
        metric: next(found[name] for name in candidates if name in found)
        for metric, candidates in wanted.items()
        if any(name in found for name in candidates)
    }


def _histograms(names: set[str], samples: Sequence[Sample]) -> dict[str, Histogram]:
    buckets: dict[str, dict[float, float]] = {}
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for sample in samples:
        name, _, part = sample.name.rpartition("_")
        if name not in names or not 0 <= sample.value <= LARGEST:
            continue
        if part == "bucket" and (limit := _limit(sample.labels.get("le", ""))) is not None:
            of_name = buckets.setdefault(name, {})
            of_name[limit] = of_name.get(limit, 0.0) + sample.value
        elif part == "sum":
            sums[name] = sums.get(name, 0.0) + sample.value
        elif part == "count":
            counts[name] = counts.get(name, 0.0) + sample.value
    return {
        name: Histogram(name, *_rows(buckets.get(name, {})), counts[name], sums[name])
        for name in names
        if name in counts and name in sums
    }


def _limit(text: str) -> float | None:
    try:
        limit = float(text)
    except ValueError:
        return None
    return limit if 0 <= limit < inf else None


def _rows(buckets: Mapping[float, float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    limits = tuple(sorted(buckets))
    return limits, tuple([buckets[limit] for limit in limits])


@dataclass(slots=True)
class _Pages:
    """The pages of one server, oldest first, without the drops of its restarts (``base``)."""

    at_ns: list[int] = field(default_factory=list)
    counters: list[Counters] = field(default_factory=list)
    base: dict[str, Histogram] = field(default_factory=dict)
    last: Counters = field(default_factory=dict)


class ServerCounters:
    """The counters of all servers over time. A metric counts only if every server that was read has it."""

    def __init__(self) -> None:
        self._pages: dict[int, _Pages] = {}

    def add(self, replica: int, at_ns: int, counters: Counters) -> None:
        """Add a page of metrics, read at that time, later than the last."""
        pages = self._pages.setdefault(replica, _Pages())
        if any(
            metric in counters and counters[metric].count < one.count for metric, one in pages.last.items()
        ):
            self.restarted(replica)
        pages.last = counters
        pages.at_ns.append(at_ns)
        pages.counters.append(
            {
                metric: one.plus(pages.base[metric]) if metric in pages.base else one
                for metric, one in counters.items()
            }
        )

    def restarted(self, replica: int) -> None:
        """Another process of the server has started, which has counted nothing yet."""
        pages = self._pages.get(replica)
        if pages is None:
            return
        for metric, histogram in pages.last.items():
            before = pages.base.get(metric)
            pages.base[metric] = histogram if before is None else before.plus(histogram)
        pages.last = {}

    @property
    def names(self) -> list[str]:
        """The servers' metrics that are read, as they call them."""
        pages = [one.last for one in self._pages.values()]
        return sorted({page[metric].name for page in pages for metric in self._metrics() if metric in page})

    def _metrics(self) -> set[str]:
        pages = [set(one.last) for one in self._pages.values() if one.last]
        return set.intersection(*pages) if pages else set()

    def measured(self, own: Measured, since_ns: int, until_ns: int) -> Measured:
        """``own``: what the client measured itself, for what servers do not count, and joint lengths.

        Later queries begin no earlier.
        """
        found: dict[str, Histogram] = {}
        for pages in self._pages.values():
            first = max(0, bisect_right(pages.at_ns, since_ns) - 1)
            last = bisect_right(pages.at_ns, until_ns) - 1
            del pages.at_ns[:first], pages.counters[:first]
            for metric in self._metrics() if last > first else ():
                before, after = pages.counters[0].get(metric), pages.counters[last - first].get(metric)
                if before is None or after is None:
                    continue
                grown = after.plus(before, -1)
                found[metric] = grown.plus(found[metric]) if metric in found else grown
        metrics = self._metrics()
        prompts, outputs = found.get(PROMPTS, NO_VALUES), found.get(OUTPUTS, NO_VALUES)
        counted = {PROMPTS, OUTPUTS} <= metrics
        return Measured(
            _latency(found, TTFT, metrics, own.ttft),
            _latency(found, TPOT, metrics, own.tpot),
            finished=round(prompts.count) if counted else own.finished,
            prompt_tokens=round(prompts.total) if counted else own.prompt_tokens,
            output_tokens=round(outputs.total) if counted else own.output_tokens,
            lengths=own.lengths,
        )


def _latency(found: Counters, metric: str, metrics: set[str], own: Latency) -> Latency:
    if metric not in metrics:
        return own
    return found[metric].latency() if metric in found else Latency()
