"""Llumnix that looks at everything every time: the reference of policies that leave looks out."""

from collections.abc import Sequence
from math import inf

from policies.llumnix.freeness import dispatch_rule, migration_rule
from policies.llumnix.migration import Llumnix
from serving.engine.fleet import FleetView
from serving.protocols.migration import InstancesView, Pair, SourceView
from serving.vocabulary.request import Request


class PlainFreeness:
    """The freest of all, each looked at for each request."""

    reads_load_reports = True

    def __init__(self, rule: str = "shipped") -> None:
        self._freeness = dispatch_rule(rule)

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        alive = [fleet.replica_at(position) for position in range(fleet.replicas)]
        known = {one: report for one in alive if (report := fleet.report(one)) is not None}
        best = min(known, key=lambda one: (-self._freeness(known[one]), one))
        free, report = self._freeness(known[best]), known[best]
        if free == inf:
            return best, "it has no requests"
        return best, f"freeness {free:.1f}, {report.running} running, {report.waiting} waiting"


class PlainLlumnix:
    """Asked once per period, it looks at all instances, and counts how often it was asked."""

    reads_load_reports = True

    def __init__(
        self, rule: str = "shipped", threshold: float = 3.0, defragment: bool = True, rounds: int = 4
    ) -> None:
        self._freeness, self._rounds, self._seen = migration_rule(rule, defragment), rounds, 0
        self._shipped, self._threshold = rule == "shipped", threshold
        self._chooser = Llumnix(rule, threshold, defragment, rounds)

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        self._seen += 1
        reports = {one: view.report(one) for one in (*view.taking, *view.leaving)}
        if self._seen % self._rounds:
            return ()
        sources, destinations = list[tuple[float, int]](), list[tuple[float, int]]()
        for one in view.taking:
            report = reports[one]
            if report is None or (view.engaged(one) and not self._shipped):
                continue
            freeness = self._freeness(report)
            if freeness < self._threshold or (self._shipped and report.preempted):
                sources.append((freeness, one))
            elif freeness > self._threshold:
                destinations.append((-freeness, one))
        sources += [(-inf, one) for one in view.leaving if self._shipped or not view.engaged(one)]
        return [
            Pair(source, destination, f"freeness {free:.1f} against {-minus_free:.1f}")
            for (free, source), (minus_free, destination) in zip(sorted(sources), sorted(destinations))
            if not (view.engaged(source) or view.engaged(destination))
        ]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        return self._chooser.choose(view)
