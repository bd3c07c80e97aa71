"""A heap of instances by freeness, of which a caller reads only the top.

Between two changes of its batch or queue an instance only takes memory, and a rule's freeness falls with free
blocks. So the freeness last read of an instance is an upper bound. A heap by these bounds is correct from the
top once each entry that reaches the top is read again.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from policies.llumnix.freeness import Rule
from serving.protocols.load_report import LoadReport

Entry = tuple[float, int, LoadReport]  # freeness, negated; instance


class Reported(Protocol):
    """The load reports that dispatchers and migration policies see."""

    def report(self, replica: int) -> LoadReport | None: ...

    def newly_reported(self) -> Sequence[int]: ...


class FreestFirst:
    """A heap by ``rule``. Only an instance's last entry counts; older ones are dropped at the top."""

    def __init__(self, rule: Rule) -> None:
        self._freeness = rule
        self._heap: list[Entry] = []
        self._last: dict[int, LoadReport] = {}

    def note(self, newly: Sequence[int], view: Reported) -> None:
        """Add the new reports of these instances."""
        heap, last, report_of = self._heap, self._last, view.report
        for replica in newly:
            report = report_of(replica)
            if report is not None and last.get(replica) is not report:  # else its entry is there
                last[replica] = report
                heappush(heap, (-self._freeness(report), replica, report))

    def first(self, view: Reported) -> Entry:
        """The freest instance by its last load report; on a tie the lowest id."""
        self.note(view.newly_reported(), view)
        self._bound()
        entry = self._top(view)
        assert entry is not None, "there is no instance"
        return entry

    def freest(
        self, view: Reported, count: int, above: float, counts: Callable[[Entry], bool]
    ) -> list[Entry]:
        """At most ``count`` entries freer than ``above`` that ``counts`` accepts, the freest first."""
        self.note(view.newly_reported(), view)
        self._bound()
        heap, seen = list[Entry](), list[Entry]()
        while len(heap) < count and (entry := self._top(view)) is not None and -entry[0] > above:
            seen.append(heappop(self._heap))
            if counts(entry):
                heap.append(entry)
        for entry in seen:
            heappush(self._heap, entry)
        return heap

    def _bound(self) -> None:
        """Remove outdated entries once they are many."""
        heap, last = self._heap, self._last
        if len(heap) > 4 * len(last) + 64:
            heap[:] = [entry for entry in heap if last.get(entry[1]) is entry[2]]
            heapify(heap)

    def _top(self, view: Reported) -> Entry | None:
        """The first valid entry, with its report read again; None if there is no instance."""
        heap, last, report_of = self._heap, self._last, view.report
        while heap:
            entry = heap[0]
            _, replica, known = entry
            if last.get(replica) is not known:
                heappop(heap)
                continue
            report = report_of(replica)
            if report is known or report == known:
                return entry
            if report is None:
                heappop(heap)
                del last[replica]
            else:
                last[replica] = report
                heapreplace(heap, (-self._freeness(report), replica, report))
        return None
