"""Instances in the order of their freeness, of which only the first are looked at.

Between two changes of its batch or queue an instance only takes memory, and a rule of freeness falls with
free blocks. So what was last read of an instance is the most that it can be: a heap by that is right from the
top on once what surfaces is read again.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from policies.llumnix.freeness import Rule
from serving.engine.fleet import FleetView
from serving.protocols.load_report import LoadReport

Entry = tuple[float, int, LoadReport]  # freeness, negated; instance


class FreestFirst:
    """By ``rule``. One entry of each instance counts, the last; others are dropped when they surface."""

    def __init__(self, rule: Rule) -> None:
        self._freeness = rule
        self._heap: list[Entry] = []
        self._last: dict[int, LoadReport] = {}

    def note(self, newly: Sequence[int], fleet: FleetView) -> None:
        """These have new reports."""
        heap, last, report_of = self._heap, self._last, fleet.report
        for replica in newly:
            report = report_of(replica)
            if report is not None and last.get(replica) is not report:  # else its entry is there
                last[replica] = report
                heappush(heap, (-self._freeness(report), replica, report))

    def first(self, fleet: FleetView) -> Entry:
        """The freest by its last load report, the lowest id among equals."""
        self.note(fleet.newly_reported(), fleet)
        heap, last, report_of = self._heap, self._last, fleet.report
        if len(heap) > 4 * len(last) + 64:
            heap[:] = [one for one in heap if last.get(one[1]) is one[2]]
            heapify(heap)
        while True:
            entry = heap[0]
            _, replica, known = entry
            if last.get(replica) is not known:
                heappop(heap)
                continue
            report = report_of(replica)
            if report is known:
                return entry
            if report is None:
                heappop(heap)
                del last[replica]
            else:
                last[replica] = report
                heapreplace(heap, (-self._freeness(report), replica, report))
