"""Searches over runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from servetwin.api.words import words_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``answer``: how many GPUs the best layout needs to meet the objective; None where no size meets it.

    With ``find=rate`` it is the factor on the trace's rate that the given GPUs serve: 1.5 is half as many
    requests per second again. ``low``, ``high``: the same if every step took as little, or as much, time as
    the error of the step times allows. ``table``: a row per layout that meets the objective, best first.
    ``sentence``: the answer in words. ``data``: all of it, as in ``plan.json``.
    """

    answer: float | None
    low: float | None
    high: float | None
    sentence: str
    table: pd.DataFrame
    data: dict[str, Any]

    @property
    def flips(self) -> bool:
        """Whether an end of the range answers otherwise."""
        return not self.low == self.answer == self.high

    def __repr__(self) -> str:
        return f"<Plan: {self.sentence}>"


def plan(*words: str, **values: Any) -> Plan:
    """``servetwin plan``: ``st.plan("gpu=h100", slo__ttft_p99_ms=500, trace="azure_conv")``."""
    from servetwin.planning.answer import plan as search
    from servetwin.planning.plan_words import plan_words
    from servetwin.planning.text import as_data

    return plan_of(as_data(search(plan_words(words_of(words, values)))))


def plan_of(data: dict[str, Any]) -> Plan:
    """Return the plan whose plan.json this is."""
    import pandas as pd

    rows = [
        {key: value for key, value in row.items() if key != "numbers"} | row["numbers"]
        for row in data["ranked"]
    ]
    return Plan(
        answer=data["answer"],
        low=data["at_low_end"],
        high=data["at_high_end"],
        sentence=data["sentence"],
        table=pd.DataFrame(rows),
        data=data,
    )
