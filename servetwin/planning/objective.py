"""The objective of a plan: limits on numbers of a run's summary."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from servetwin.config.overrides import Override, Wanted, parse_value
from servetwin.report.metric_text import name_of, value_text
from servetwin.results.metrics import QUANTILES
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import BEYOND_CONTEXT

LATENCIES: Final = ("ttft", "tpot", "itl", "e2e")
STATISTICS: Final = ("mean", *QUANTILES, "max")
_KEY: Final = re.compile(rf"slo\.({'|'.join(LATENCIES)})_({'|'.join(STATISTICS)})_ms")
AT_LEAST: Final = ("slo.attainment", "slo.goodput_req_per_s")
EXAMPLE: Final = "slo.ttft_p99_ms=500"
_REJECTED: Final = "rejected_reasons."  # counts by reason, as numbers of a summary


@dataclass(frozen=True, slots=True)
class Limit:
    """``metric`` is the dotted name of a number of the summary; ``at_most`` False: at least."""

    metric: str
    value: float
    at_most: bool

    def met_by(self, numbers: Mapping[str, float]) -> bool:
        """Return whether the number meets the limit; a missing number does not."""
        value = numbers.get(self.metric)
        if value is None:
            return False
        return value <= self.value if self.at_most else value >= self.value

    @property
    def in_words(self) -> str:
        """Return ``TTFT P99 at most 500 ms``."""
        side = "at most" if self.at_most else "at least"
        return f"{name_of(self.metric)} {side} {value_text(self.metric, self.value)}"

    def __str__(self) -> str:
        """Return ``ttft_ms.p99 <= 500``."""
        return f"{self.metric} {'<=' if self.at_most else '>='} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Objective:
    """All limits together, for requests that are answered.

    A latency is known of finished requests alone. So no request may fail, and with a limit on a latency none
    may be rejected, except those beyond the context, which no size answers. Attainment and goodput count
    rejected requests themselves, as missed.
    """

    limits: tuple[Limit, ...]

    def met_by(self, numbers: Mapping[str, float]) -> bool:
        """Return whether a run with these numbers meets the objective, rejected requests included."""
        return not self.unanswered(numbers) and all(limit.met_by(numbers) for limit in self.limits)

    def unanswered(self, numbers: Mapping[str, float]) -> str:
        """Return which requests lack an answer that the objective needs; "" if none does."""
        if failed := numbers.get("requests.failed", 0):
            return f"{failed:,.0f} requests failed"
        rejected = numbers.get("requests.rejected", 0) - beyond_context(numbers)
        if rejected > 0 and any(limit.at_most for limit in self.limits):
            return f"{rejected:,.0f} requests rejected ({_reasons(numbers)})"
        return "" if numbers.get("requests.finished", 0) > 0 else "no request finished"

    @property
    def in_words(self) -> str:
        """Return all limits in words."""
        return " and ".join(limit.in_words for limit in self.limits)

    def __str__(self) -> str:
        return " and ".join(map(str, self.limits))


def beyond_context(numbers: Mapping[str, float]) -> float:
    """Return how many requests were rejected because the context holds no such length, on any size."""
    return sum(count for reason, count in _rejections(numbers) if reason.endswith(BEYOND_CONTEXT))


def _rejections(numbers: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, count in numbers.items():
        if name.startswith(_REJECTED):
            yield name.removeprefix(_REJECTED), count


def _reasons(numbers: Mapping[str, float]) -> str:
    return "; ".join(reason for reason, _ in _rejections(numbers) if not reason.endswith(BEYOND_CONTEXT))


def is_limit(key: str) -> bool:
    """Return whether a key belongs to the objective: ``slo.ttft_p99_ms``, ``slo.attainment`` ..."""
    return _KEY.fullmatch(key) is not None or key in AT_LEAST


def nearest_limit(key: str) -> str:
    """Return the objective that a wrong key such as ``ttft_p99`` must mean; "" if there is none."""
    parts = set(re.split(r"[._]", key.lower()))
    latency = next((latency_name for latency_name in LATENCIES if latency_name in parts), "")
    statistic = next((statistic_name for statistic_name in STATISTICS if statistic_name in parts), "")
    return f"slo.{latency}_{statistic}_ms" if latency and statistic else ""


def not_an_objective(key: str, text: str) -> UserError:
    """Return the error for a key that resembles an objective, with what to write instead."""
    near = nearest_limit(key)
    if near:
        return UserError(f"{key} is no objective of a plan: write {near}={text} if that is meant")
    return UserError(
        f"{key} is no objective of a plan: write slo.METRIC_STATISTIC_ms={text} with one of "
        f"{', '.join(LATENCIES)} as METRIC and one of {', '.join(STATISTICS)} as STATISTIC, such as {EXAMPLE}"
    )


def no_objective(words: Sequence[str]) -> UserError:
    """Return what to add. Limits of single requests also need the share of requests that must meet them."""
    bound = next((word for word in words if word.startswith(("slo.ttft_ms=", "slo.tpot_ms="))), "")
    if not bound:
        return UserError(f"a plan needs an objective: write one such as {EXAMPLE} or slo.attainment=0.99")
    key, _, text = bound.partition("=")
    tail = f"{key.removesuffix('_ms')}_p99_ms={text}"
    return UserError(
        f"a plan needs an objective, and {bound} bounds single requests: add slo.attainment=0.99 (the share "
        f"of requests that keep it), or write {tail}"
    )


def limit_of(key: str, text: str) -> Limit:
    """Parse a limit. UserError for a value that is no positive number, or a share above 1."""
    value = float(parse_value(Override(key, text), Wanted(float)))
    matched = _KEY.fullmatch(key)
    if value <= 0 or (key == "slo.attainment" and value > 1):
        example = EXAMPLE if matched else f"{key}=0.9"
        raise UserError(f"{key}={text} is out of range: write a number such as {example}")
    if matched is None:
        return Limit(key, value, at_most=False)
    return Limit(f"{matched[1]}_ms.{matched[2]}", value, at_most=True)
