"""What a scaler would have decided at each instant of a record, each time from the recorded instances."""

from dataclasses import dataclass
from math import gcd
from typing import Any

from servetwin.advising.record import Record
from servetwin.advising.recorded_view import RecordedViews
from serving.elastic.setup import ElasticSetup
from serving.protocols.scale_answers import CheckedScaler
from serving.protocols.scaling import ScaleDecision
from serving.vocabulary.units import NS_PER_S

_STARTS = ("load", "shortage", "revive", "cancel_drain")


@dataclass(frozen=True, slots=True)
class Decision:
    """At ``at_s`` since the first instant: ``recorded`` instances were there, ``wanted`` would have been set.

    ``reason``: the scaler's own; empty where it changes nothing.
    """

    at_s: float
    recorded: int
    wanted: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``period_s``: how often the scaler decides. ``missing``: what it needs and the record lacks.

    ``decisions``: one for each time that it was asked and had metrics; none with anything missing.
    """

    period_s: float
    missing: tuple[str, ...]
    decisions: tuple[Decision, ...]


def advise(record: Record, scaler: Any, setup: ElasticSetup, model: str, prefix_hit_share: float) -> Advice:
    """Ask the scaler at every multiple of its period. Raises PolicyError for a wrong answer of it."""
    rules = setup.signals
    assert rules is not None, "a scaler that reads metrics has rules for them"
    period_ns = round(getattr(scaler, "period_s", rules.tick_ns / NS_PER_S) * NS_PER_S)
    assert gcd(period_ns, rules.tick_ns) == rules.tick_ns
    views = RecordedViews(
        record,
        model,
        setup.limits[model],
        window_s=rules.window_ns / NS_PER_S,
        prefix_hit_share=prefix_hit_share,
    )
    checked, decisions = CheckedScaler(scaler), list[Decision]()
    for now_ns in range(period_ns, round(record.end_s * NS_PER_S), period_ns):
        scraped_ns = (now_ns - rules.delay_ns) // rules.scrape_ns * rules.scrape_ns
        view = views.view(now_ns / NS_PER_S, scraped_ns / NS_PER_S)
        answer = checked.scale(view)
        if view.signals is not None:
            decisions.append(_decision(now_ns / NS_PER_S, view.roles[0].supply, answer))
    missing = tuple(sorted(views.missing))
    return Advice(
        period_s=period_ns / NS_PER_S, missing=missing, decisions=() if missing else tuple(decisions)
    )


def _decision(at_s: float, recorded: int, answer: tuple[ScaleDecision, ...]) -> Decision:
    wanted = recorded
    for one in answer:
        wanted += one.count if one.act in _STARTS else -one.count if one.act == "drain" else 0
    return Decision(at_s, recorded, wanted, answer[0].reason if answer else "")
