"""The fabric: flows over links of finite capacity, as rates between events.

A flow's rate changes only when a flow starts or ends or a link changes. Changes at one moment are solved
together when time advances or a rate is requested, and only where they can change a rate
(``hwmodels.fabric.region``). A flow that finds capacity on every link needs no solving, nor does the end of a
flow that filled no shared link. A flow alone on its links books them when it starts: its end is known then,
and the end of its latency is not an event unless another flow starts on one of its links.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from hwmodels.fabric.check import faults
from hwmodels.fabric.flow import KINDS, Finished, FlowSpec, check_capacity
from hwmodels.fabric.max_min import ROUNDING, fill
from hwmodels.fabric.moving import INF, Agenda, Moving
from hwmodels.fabric.region import SAME_LEVEL, Pending, full_level, region_of

# What links carried: bytes by kind, the highest rate, and if requested the rate over time.


class Usage:
    """Counters by link. A flow is counted when it ends, so that a change of its rate costs nothing here.

    carried_bytes: by kind, then by link, of flows that ended. peak_bytes_per_s: by link. series: of watched
    links, (time, total rate from then on) at every change, in order.
    """

    __slots__ = ("carried_bytes", "peak_bytes_per_s", "series")

    def __init__(self, links: int) -> None:
        self.carried_bytes: dict[str, list[float]] = {kind: [0.0] * links for kind in KINDS}
        self.peak_bytes_per_s: list[float] = [0.0] * links
        self.series: dict[int, array[float]] = {}

    def count(self, kind: str, links: tuple[int, ...], size_bytes: float) -> None:
        """Count an ended flow that moved ``size_bytes`` over each of its links."""
        carried = self.carried_bytes[kind]
        for link in links:
            carried[link] += size_bytes

    def peak(self, links: tuple[int, ...], rate_bytes_per_s: float) -> None:
        """Note that each of the links carried this rate."""
        peaks = self.peak_bytes_per_s
        for link in links:
            if rate_bytes_per_s > peaks[link]:
                peaks[link] = rate_bytes_per_s

    def watch(self, link: int, at_s: float, rate_bytes_per_s: float) -> None:
        """Record the link's rate from now on."""
        self.series.setdefault(link, array("d", (at_s, rate_bytes_per_s)))

    def note(self, link: int, at_s: float, rate_bytes_per_s: float) -> None:
        """Set the total rate of a watched link from now on; of several at one time the last counts."""
        points = self.series[link]
        if points[-2] == at_s:
            del points[-2:]
        if not points or points[-1] != rate_bytes_per_s:
            points.extend((at_s, rate_bytes_per_s))

    def note_span(
        self, links: tuple[int, ...], since_s: float, until_s: float, rate_bytes_per_s: float
    ) -> None:
        """Note a rate during a span on those of the links that are watched: a flow had them alone."""
        for link in links:
            if link in self.series:
                self.note(link, since_s, rate_bytes_per_s)
                self.note(link, until_s, 0.0)


# Links that a flow has booked during its latency, because no other flow uses them.


class Bookings:
    """``by_link``: the flow that booked it. A booked flow has rate and end, but no share of a link yet."""

    __slots__ = ("by_link",)

    def __init__(self) -> None:
        self.by_link: dict[int, Moving] = {}

    def book(
        self,
        flow: Moving,
        on_links: Sequence[Mapping[int, Moving]],
        capacities: Sequence[float],
    ) -> None:
        """Book a new flow's links if no flow uses or has booked them: then its end is known."""
        by_link, links, rate = self.by_link, flow.links, flow.spec.cap_bytes_per_s
        if not by_link.keys().isdisjoint(links):
            return
        for link in links:
            if on_links[link]:
                return
            if capacities[link] < rate:
                rate = capacities[link]
        if rate:
            by_link.update(dict.fromkeys(links, flow))
            flow.booked, flow.rate, flow.since_s = True, rate, flow.due_s
            flow.due_s += flow.size_bytes / rate

    def give_back(self, flow: Moving) -> None:
        """Remove the flow's bookings."""
        flow.booked = False
        for link in flow.links:
            del self.by_link[link]


# Links that somebody holds who wants to know before another flow uses them.


class Holds:
    """``by_link``: whom to tell the time before a flow starts on a held link, or joins it after its latency.

    Whoever is told gives the links back and may start and abort flows.
    """

    __slots__ = ("by_link",)

    def __init__(self) -> None:
        self.by_link: dict[int, Callable[[float], None]] = {}

    def end(self, links: Iterable[int], now_s: float) -> None:
        """Tell those that hold one of the links."""
        for link in links:
            tell = self.by_link.get(link)
            if tell is not None:
                tell(now_s)
                assert link not in self.by_link, f"link {link} is still held after another flow came"


_FULL = 1 - SAME_LEVEL


class Fabric:
    """Flows on links with these capacities (bytes/s; 0 is a failed link), over time (seconds).

    Events up to ``now_s`` of a call happen first; finished flows are kept for the next ``advance``. ``start``
    returns the number that identifies a flow. Raises HardwareError for a capacity that is neither 0 nor
    finite and at least ``LEAST_BYTES_PER_S``.
    """

    __slots__ = (
        "_agenda", "_bookings", "_capacities", "_done", "_free", "_holds", "_largest", "_moving", "_now_s",
        "_on", "_pending", "_started", "_usage", "_used",
    )  # fmt: skip

    def __init__(self, capacities_bytes_per_s: Sequence[float], start_s: float = 0.0) -> None:
        for link, capacity in enumerate(capacities_bytes_per_s):
            check_capacity(link, capacity)
        self._capacities = [float(capacity) for capacity in capacities_bytes_per_s]
        self._largest = list(self._capacities)
        self._now_s = start_s
        self._started = 0
        self._moving: dict[int, Moving] = {}
        self._on: list[dict[int, Moving]] = [{} for _ in self._capacities]
        self._used = [0.0] * len(self._capacities)
        self._free = [0.0] * len(self._capacities)
        self._agenda = Agenda(self._moving)
        self._bookings = Bookings()
        self._holds = Holds()
        self._pending = Pending()
        self._done: list[tuple[float, int, float]] = []
        self._usage = Usage(len(self._capacities))

    # Calls from outside.

    @property
    def now_s(self) -> float:
        """The time of the latest call that passed one."""
        return self._now_s

    def start(self, spec: FlowSpec, now_s: float, size_bytes: float | None = None) -> int:
        """Start a flow; returns its number, counting up from 0. size_bytes: replaces the size in ``spec``."""
        self._run_to(now_s)
        if self._holds.by_link and not self._holds.by_link.keys().isdisjoint(spec.links):
            self._holds.end(spec.links, now_s)
        number = self._started
        self._started = number + 1
        if size_bytes is None:
            size_bytes = spec.size_bytes
        begins_s = now_s + spec.latency_s
        self._moving[number] = flow = Moving(number, spec, size_bytes, now_s, begins_s)
        if size_bytes and flow.links:
            if begins_s == now_s:
                self._join(flow)
                return number
            self._bookings.book(flow, self._on, self._capacities)
        self._agenda.put(flow)
        return number

    def abort(self, flow: int, now_s: float) -> float:
        """End the flow now; returns the bytes it moved, all if it was just done. It will not be reported."""
        self._run_to(now_s)
        moving = self._moving.get(flow)
        if moving is not None:
            self._unbook(moving)
            moved_bytes = moving.size_bytes - moving.left_bytes(now_s)
            self._end(moving, moved_bytes)
            self._agenda.tidy()
            return moved_bytes
        sizes = [size_bytes for _, number, size_bytes in self._done if number == flow]
        assert sizes, f"flow {flow} has been reported, aborted, or never started"
        self._done = [done for done in self._done if done[1] != flow]
        return sizes[0]

    def set_capacity(self, link: int, bytes_per_s: float, now_s: float) -> None:
        """Set the link's capacity from now on; at 0 its flows wait."""
        check_capacity(link, bytes_per_s)
        self._run_to(now_s)
        if self._holds.by_link:  # who holds a link may count on the rates of others, too
            self._holds.end(list(self._holds.by_link), now_s)
        self._touch(link)
        least = min(self._capacities[link], bytes_per_s)
        self._capacities[link] = float(bytes_per_s)
        self._largest[link] = max(self._largest[link], self._capacities[link])
        flows = self._on[link].values()
        # The carried rate is known up to rounding of the old capacity, possibly large for a small new one.
        self._used[link] = math.fsum([flow.rate for flow in flows])
        if flows and (self._pending.links or self._used[link] >= least * _FULL):
            priority = max(flow.priority for flow in flows)
            known = [flow.level for flow in flows if flow.priority == priority and flow.level < INF]
            level = max(known, default=INF)  # where the link stopped flows; new ones were not stopped yet
            self._pending.add((link,), priority, min(level, full_level(flows, priority, bytes_per_s)))

    def advance(self, now_s: float) -> list[Finished]:
        """Flows that finished by ``now_s`` and were not yet reported, by time, then by number."""
        return [Finished(number, at_s) for at_s, number, _ in self._reported(now_s)]

    def finished(self, now_s: float) -> list[int]:
        """The flows that ``advance`` would return, without their times."""
        return [number for _, number, _ in self._reported(now_s)]

    def _reported(self, now_s: float) -> list[tuple[float, int, float]]:
        self._run_to(now_s)
        done = self._done
        if done:
            self._done = []
            if len(done) > 1:
                done.sort()
        return done

    def next_completion_s(self) -> float:
        """When to call ``advance`` next: a flow finishes, or takes its share after its latency."""
        if self._done:
            return self._now_s
        if self._pending.links:
            self._settle()
        return self._agenda.next_s() if self._moving else INF

    def rate(self, flow: int) -> float:
        """Bytes/s of a flow that has not ended; 0 during its latency and while a link of it has failed."""
        self._unbook(self._moving[flow])
        self._settle()
        return self._moving[flow].rate

    def remaining(self, flow: int) -> float:
        """Bytes a flow that has not ended still has to move."""
        self._unbook(self._moving[flow])
        return self._moving[flow].left_bytes(self._now_s)

    def flows_on(self, link: int) -> tuple[int, ...]:
        """Flows that have a share of the link, in the order in which they took it."""
        self._touch(link)
        return tuple(self._on[link])

    def capacity(self, link: int) -> float:
        """Present capacity of the link in bytes/s."""
        return self._capacities[link]

    def used(self, link: int) -> float:
        """Bytes/s that cross the link now."""
        self._touch(link)
        self._settle()
        return self._used[link]

    def carried_bytes(self, link: int, kind: str) -> float:
        """Bytes of this kind that have crossed the link so far, including those of aborted flows."""
        self._touch(link)
        on_the_way = [flow for flow in self._on[link].values() if flow.spec.kind == kind]
        moved_bytes = [flow.size_bytes - flow.left_bytes(self._now_s) for flow in on_the_way]
        return self._usage.carried_bytes[kind][link] + math.fsum(moved_bytes)

    def peak_share(self, link: int) -> float:
        """The highest rate that ever crossed the link, as a share of the largest capacity it ever had."""
        self._touch(link)
        self._settle()
        largest = self._largest[link]
        return self._usage.peak_bytes_per_s[link] / largest if largest else 0.0

    def watch(self, link: int) -> None:
        """Record the link's rate over time from now on."""
        self._usage.watch(link, self._now_s, self.used(link))

    def series(self, link: int) -> list[tuple[float, float]]:
        """(time in s, bytes/s from then on) of a watched link, at every change."""
        self._touch(link)
        self._settle()
        points = self._usage.series[link]
        return list(zip(points[::2], points[1::2], strict=True))

    # Links that a caller holds without a flow, because it knows what crosses them while nobody else does.

    def can_hold(self, links: Sequence[int]) -> bool:
        """Whether no link is used, held or watched. Who held one is told that another wants it."""
        held, booked, watched = self._holds.by_link, self._bookings.by_link, self._usage.series
        if not held.keys().isdisjoint(links):
            self._holds.end(links, self._now_s)  # whoever cannot hold them will use them
            return False
        return not any(self._on[link] or link in booked or link in watched for link in links)

    def hold(self, links: Sequence[int], tell: Callable[[float], None]) -> bool:
        """Hold links if that is possible; returns whether it was.

        ``tell`` is called with the time before another flow uses one of them, before any link's capacity
        changes, and when one of them is asked about. It must ``let_go``.
        """
        if not self.can_hold(links):
            return False
        self._holds.by_link.update(dict.fromkeys(links, tell))
        return True

    def let_go(self, links: tuple[int, ...], kind: str, moved_bytes: float, rate_bytes_per_s: float) -> None:
        """Give links back that were held, and count what crossed each of them at this rate."""
        for link in links:
            self._holds.by_link.pop(link, None)
        if moved_bytes:
            self._usage.count(kind, links, moved_bytes)
            self._usage.peak(links, rate_bytes_per_s)

    def remember(self, flow: int) -> None:
        """Keep the rates of a flow that has just started, for ``passed_s``."""
        self._moving[flow].past = []

    def passed_s(self, flow: int, sizes_bytes: Sequence[float], now_s: float) -> list[float] | None:
        """When each of these parts of a remembered flow had moved: of those that have by now.

        None if the flow has ended.
        """
        self._run_to(now_s)
        moving = self._moving.get(flow)
        if moving is None:
            return None
        self._unbook(moving)
        return moving.passed_s(sizes_bytes, now_s) if moving.joined else []

    def shorten(self, flow: int, size_bytes: float) -> None:
        """Let a flow end after this many bytes, of which it has moved fewer."""
        moving = self._moving[flow]
        self._unbook(moving)
        moving.shorten(size_bytes)
        self._agenda.put(moving)

    def check(self) -> None:
        """Raise AssertionError unless the rates are possible, fair and without waste."""
        for flow in list(self._bookings.by_link.values()):
            self._unbook(flow)
        self._settle()
        faults_found = faults(self._moving, self._on, self._capacities, self._used)
        assert not faults_found, "; ".join(faults_found)

    # Internal steps.

    def _run_to(self, now_s: float) -> None:
        """Carry out what is due by ``now_s``."""
        assert now_s >= self._now_s, f"time goes back from {self._now_s} to {now_s}"
        agenda = self._agenda
        if not self._pending.links and (not agenda.entries or agenda.entries[0][0] > now_s):
            self._now_s = now_s
            return
        while True:
            if self._pending.links and self._now_s < now_s:
                self._settle()
            # Entries may be outdated, but never late: nothing is due before the first of them.
            if not agenda.entries or agenda.entries[0][0] > now_s or (at_s := agenda.next_s()) > now_s:
                break
            self._now_s = at_s
            flow = agenda.pop()
            size_bytes = flow.size_bytes
            if flow.joined or flow.booked or not flow.links or not size_bytes:
                self._end(flow, size_bytes)
                self._done.append((at_s, flow.number, size_bytes))
            else:
                if self._holds.by_link:
                    self._holds.end(flow.links, at_s)
                self._join(flow)
        self._now_s = now_s

    def _join(self, flow: Moving) -> None:
        """Give the flow its share of its links: at once if there is room, else at the next solution."""
        flow.joined = True
        links, on, capacities, used = flow.links, self._on, self._capacities, self._used
        if self._bookings.by_link:
            for link in links:
                self._touch(link)
        rate, room = flow.spec.cap_bytes_per_s, INF
        for link in links:
            if on[link]:
                room = min(room, capacities[link] * _FULL - used[link])
            elif capacities[link] < rate:
                rate = capacities[link]
        if rate <= room and not self._pending.links:
            flow.since_s = self._now_s
            self._give(flow, rate)
            for link in links:
                on[link][flow.number] = flow
                self._use(link, used[link] + rate)
            return
        flow.since_s, flow.due_s = self._now_s, INF
        for link in links:
            on[link][flow.number] = flow
        self._pending.join(flow)

    def _touch(self, link: int) -> None:
        """Turn the booking of a link into a flow on it: another flow joins, or its flows are listed."""
        flow = self._bookings.by_link.get(link)
        if flow is not None:
            self._unbook(flow)
        elif link in self._holds.by_link:
            self._holds.end((link,), self._now_s)

    def _unbook(self, flow: Moving) -> None:
        """Treat the flow like any other from now on: the end of its latency is an event, or has been one."""
        if not flow.booked:
            return
        self._bookings.give_back(flow)
        if flow.since_s > self._now_s:
            flow.rate, flow.due_s = 0.0, flow.since_s
            self._agenda.put(flow)
            return
        if self._usage.series:
            self._usage.note_span(flow.links, flow.since_s, self._now_s, flow.rate)
        flow.joined, flow.level = True, flow.rate / flow.spec.weight
        for link in flow.links:
            self._on[link][flow.number] = flow
            self._use(link, flow.rate)

    def _end(self, flow: Moving, moved_bytes: float) -> None:
        """Remove the flow from its links and count its bytes. The flows on its full links get new rates."""
        del self._moving[flow.number]
        if flow.booked:
            self._bookings.give_back(flow)
            if self._usage.series:
                self._usage.note_span(flow.links, flow.since_s, self._now_s, flow.rate)
            self._usage.peak(flow.links, flow.rate)
            self._usage.count(flow.spec.kind, flow.links, moved_bytes)
            return
        if not flow.joined:
            return
        rate, full = flow.rate, []
        for link in flow.links:
            members = self._on[link]
            del members[flow.number]
            used, capacity = self._used[link], self._capacities[link]
            if members and rate and used >= capacity * _FULL:
                full.append(link)
            left = used - rate
            # Members that stand still elsewhere leave a remainder that is rounding.
            self._use(link, left if members and left > capacity * ROUNDING else 0.0)
        self._usage.count(flow.spec.kind, flow.links, moved_bytes)
        if full:
            self._pending.add(full, flow.priority, flow.level)

    def _settle(self) -> None:
        """Solve pending changes, at the present time."""
        if not self._pending.links:
            return
        if self._pending.new:
            self._pending.lower(self._on, self._capacities)
        flows, links = region_of(self._pending, self._on, self._capacities, self._free)
        self._pending.clear()
        for flow, rate in zip(flows, fill([flow.spec for flow in flows], self._capacities, self._free)):
            if rate != flow.rate or flow.level == INF:
                self._give(flow, rate)
        for link in links:
            self._use(link, self._capacities[link] - self._free[link])
        self._agenda.tidy()

    def _give(self, flow: Moving, rate: float) -> None:
        flow.set_rate(rate, self._now_s)
        flow.level = rate / flow.spec.weight
        self._agenda.put(flow)

    def _use(self, link: int, rate: float) -> None:
        """Set the link's total rate from now on; an earlier rate at the same time does not count."""
        self._used[link] = rate
        usage = self._usage
        if rate > usage.peak_bytes_per_s[link]:
            usage.peak_bytes_per_s[link] = rate
        if link in usage.series:
            usage.note(link, self._now_s, rate)
