"""The answer of a plan as data: each layout's answer, and that of the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from servetwin.planning.busiest import Busiest
from servetwin.planning.deploy import Deploy
from servetwin.planning.plan_words import PlanWords
from servetwin.planning.probe import PROMPT_RATE
from servetwin.planning.search import LayoutSearch
from servetwin.results.ranges import Answers
from serving.vocabulary.errors import UserError

S_PER_HOUR: Final = 3600.0
MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout and its requirements: ``cost`` per hour in the currency of the prices, None without a price.

    ``dropped``: why it was not searched on the whole workload; empty if it was.
    """

    search: LayoutSearch
    cost: float | None = None
    dropped: str = ""

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours that the run held."""
        outcome = self.search.outcome
        return None if outcome is None else outcome.numbers["gpu_seconds"] / S_PER_HOUR

    @property
    def cost_per_million(self) -> tuple[float, float] | None:
        """Cost of a million output tokens, and of a million tokens of prompts and outputs, of this load."""
        outcome = self.search.outcome
        if self.cost is None or outcome is None or PROMPT_RATE not in outcome.numbers:
            return None
        output = outcome.numbers["throughput.output_tokens_per_s"]
        hourly = (
            output * S_PER_HOUR / MILLION,
            (output + outcome.numbers[PROMPT_RATE]) * S_PER_HOUR / MILLION,
        )
        return self.cost / hourly[0], self.cost / hourly[1]


class NoLayoutError(UserError):
    """No layout runs at all. ``reasons``: each layout that was tried, and why it does not run."""

    def __init__(self, reasons: Sequence[tuple[str, str]]) -> None:
        self.reasons = tuple(dict(reasons).items())
        super().__init__(f"no layout runs: {'; '.join(f'{name}: {why}' for name, why in self.reasons)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """``ranked``: the candidates, best first. ``unable``: those without an answer. ``ends``: the best one's
    answers for the range of step times.

    ``headroom``: the factor by which the rate may grow at the answer. With find=rate the answers are factors
    on the trace's rate, and ``rate_per_s`` is the rate with the factor 1. ``precision``: how quantised models
    and their KV are stored; empty if none is. ``deploy``: how the answer is deployed; None without one.
    ``same_lengths``: tokens of every prompt and every answer, if all requests are identical.
    """

    options: PlanWords
    ranked: tuple[Candidate, ...]
    unable: tuple[Candidate, ...]
    ends: Answers
    headroom: float | None = None
    busiest: Busiest | None = None
    rate_per_s: float | None = None
    runs: int = 0
    precision: str = ""
    deploy: Deploy | None = None
    same_lengths: tuple[int, int] | None = None
    details: dict[str, Any] = field(default_factory=dict)
