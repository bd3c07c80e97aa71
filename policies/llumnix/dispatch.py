"""Dispatch to the freest instance, by load reports: Llumnix's, and INFaaS++'s without migration."""

from heapq import heapify, heappop, heappush
from math import inf

from policies.llumnix.freeness import dispatch_rule
from serving.engine.fleet import FleetView
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request

_Entry = tuple[float, int, LoadReport]


class Freeness:
    """The freest instance by its last load report, the lowest id among equals.

    ``rule``: ``shipped`` or ``paper`` (``policies.llumnix.freeness``). Reports are ``reports_age_ms`` old at
    most, but for arrivals and changes of a batch, which count at once. A heap holds every report that was
    ever the last; one that no longer is is dropped when it surfaces.
    """

    reads_load_reports = True

    def __init__(self, rule: str = "shipped", reports_age_ms: float = 50.0) -> None:
        if not 0 < reports_age_ms < inf:
            raise ValueError(f"reports_age_ms must be finite and above 0, not {reports_age_ms}")
        self.reports_age_ms = reports_age_ms
        self._freeness = dispatch_rule(rule)
        self._heaps: dict[str, list[_Entry]] = {}

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The freest; the reason tells how free."""
        heap = self._heaps.setdefault(request.model, [])
        for replica in fleet.newly_reported():
            self._push(heap, replica, fleet)
        if len(heap) > 4 * fleet.replicas + 64:
            heap[:] = [one for one in heap if fleet.report(one[1]) is one[2]]
            heapify(heap)
        while fleet.report(heap[0][1]) is not heap[0][2]:
            heappop(heap)
        load, replica, report = heap[0]
        if load == -inf:
            return replica, "it has no requests"
        return replica, f"freeness {-load:.1f}, {report.running} running, {report.waiting} waiting"

    def _push(self, heap: list[_Entry], replica: int, fleet: FleetView) -> None:
        report = fleet.report(replica)
        if report is not None:
            heappush(heap, (-self._freeness(report), replica, report))
