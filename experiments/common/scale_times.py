"""How long scaling takes, from the events of a run: until models have what they want, until GPUs are free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from servetwin.report.number_text import section
from servetwin.report.scaling import instance_steps

_GONE: Final = ("released", "lost")


def freeing_s(summary: Mapping[str, Any]) -> list[float]:
    """Seconds from each decision to drain an instance until its GPUs are free.

    A drain that is cancelled, or whose instance is lost, does not count.
    """
    began, freed_s = dict[int, float](), list[float]()
    for event in summary.get("scale_events") or ():
        replica = event["replica"]
        if event["act"] == "drain":
            began[replica] = event["t_s"]
        elif event["act"] in ("cancel_drain", *_GONE) and replica in began:
            since_s = began.pop(replica)
            if event["act"] == "released":
                freed_s.append(event["t_s"] - since_s)
    return freed_s


def times_to_capacity(summary: Mapping[str, Any]) -> list[float]:
    """Seconds of every time span in which some instance of one model was loading.

    In a run that begins without instances, a model that has none and lacks GPUs waits from the first such
    shortage on. Other shortages do not count: they may end because the model wants less again.
    """
    events, wants = summary.get("scale_events") or (), dict[str, _Wants]()
    from_none = _from_none(summary, events)
    spans_s = (wants.setdefault(event["model"], _Wants()).span_s(event, from_none) for event in events)
    return [span_s for span_s in spans_s if span_s is not None]


@dataclass(slots=True)
class _Wants:
    """What a model waits for. held: its instances, loading ones included; since_s: None while it has all."""

    held: set[int] = field(default_factory=set)
    loading: set[int] = field(default_factory=set)
    since_s: float | None = None

    def span_s(self, event: Mapping[str, Any], from_none: bool) -> float | None:
        """Take the model's next event; seconds since it began to wait, if it waits no longer."""
        act, replica = event["act"], event["replica"]
        if act == "load" or (act == "shortage" and from_none and not self.held):
            self.since_s = event["t_s"] if self.since_s is None else self.since_s
        if act == "load":
            self.held.add(replica)
            self.loading.add(replica)
        if act in _GONE:
            self.held.discard(replica)
        if act not in ("ready", *_GONE) or replica not in self.loading:
            return None
        self.loading.discard(replica)
        if self.loading or self.since_s is None:
            return None
        waited_s, self.since_s = event["t_s"] - self.since_s, None
        return float(waited_s)


def _from_none(summary: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no model has an instance at the start."""
    roles = section(section(summary, "instances"), "mean_by_role")
    steps = instance_steps(events, roles, float(summary.get("duration_s") or 0.0))
    return not any(counts[0] for _, counts in steps.values())
