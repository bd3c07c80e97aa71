"""What a change of the fabric can affect, so that only this is solved again.

Filling (``max_min``) with and without the change is equal up to some level: the one at which a departed flow
had been stopped, or at which a link of a new flow is full. Flows stopped below it keep their rates, and two
links connected only by such flows are not connected here. Flows of higher priority keep their rates, too.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from hwmodels.fabric.max_min import ROUNDING
from hwmodels.fabric.moving import Moving

# Levels nearer than this count as equal: it is far above their rounding, and solving too much is never wrong.
SAME_LEVEL: Final = 1e-9
_REFINEMENTS: Final = 2

OnLinks = Sequence[dict[int, Moving]]


class Pending:
    """Unsolved changes of one moment: the links where they begin, and the level from which they matter.

    Only flows of ``priority`` at ``level`` or above, and flows of lower priority, can get another rate.
    new: flows that took a place on their links at this moment. For what their links make of the level, ask
    ``lower`` once, when all of them are there: for every flow on its own it is quadratic in their number.
    """

    __slots__ = ("level", "links", "new", "priority")

    def __init__(self) -> None:
        self.links: set[int] = set()
        self.priority = 0
        self.level = math.inf
        self.new: list[Moving] = []

    def add(self, links: Iterable[int], priority: int, level: float) -> None:
        """Add one more change."""
        if not self.links or priority > self.priority:
            self.priority, self.level = priority, level
        elif priority == self.priority and level < self.level:
            self.level = level
        self.links.update(links)

    def join(self, flow: Moving) -> None:
        """Add a new flow, which is on its links already."""
        self.add(flow.links, flow.priority, flow.spec.cap_bytes_per_s / flow.spec.weight)
        self.new.append(flow)

    def lower(self, on_links: OnLinks, capacities: Sequence[float]) -> None:
        """Lower the level to where a link of a new flow can be full."""
        priority = self.priority
        for link in {link for flow in self.new if flow.priority == priority for link in flow.links}:
            level = full_level(on_links[link].values(), priority, capacities[link])
            if level < self.level:
                self.level = level

    def clear(self) -> None:
        """Forget all changes after they are solved."""
        self.links.clear()
        self.new.clear()


def full_level(flows: Iterable[Moving], priority: int, capacity_bytes_per_s: float) -> float:
    """A lower bound of the level at which a link with these flows is full.

    Flows of ``priority`` count with their present levels, new ones with the level that is sought.
    """
    free = capacity_bytes_per_s
    total = 0.0
    peers = []
    for flow in flows:
        if flow.priority == priority:
            peers.append((flow.level, flow.spec.weight, flow.rate))
            total += flow.spec.weight
        elif flow.priority > priority:
            free -= flow.rate
    free = max(free, 0.0)
    if total == 0.0:
        return math.inf
    level = free / total
    for _ in range(_REFINEMENTS):
        taken, above = 0.0, 0.0
        for stopped, share, rate in peers:
            if stopped < level:
                taken += rate
            else:
                above += share
        higher = (free - taken) / above if above else math.inf
        if not higher > level:
            break
        level = higher
    return level


def region_of(
    pending: Pending, on_links: OnLinks, capacities: Sequence[float], free: list[float]
) -> tuple[list[Moving], list[int]]:
    """(flows whose rate the pending changes can alter, the links these cross).

    free: by link; set, for the links returned, to what the other flows leave.
    """
    priority, floor = pending.priority, pending.level * (1 - SAME_LEVEL)
    links = list(pending.links)
    seen = set(links)
    flows: dict[int, Moving] = {}
    for link in links:  # grows during the loop
        fixed = 0.0
        for flow in on_links[link].values():
            # One test is enough for most: flows of lower priority may be at any level.
            if flow.level >= floor if flow.priority == priority else flow.priority < priority:
                if flow.number not in flows:
                    flows[flow.number] = flow
                    for other in flow.links:
                        if other not in seen:
                            seen.add(other)
                            links.append(other)
            else:
                fixed += flow.rate
        left = capacities[link] - fixed
        free[link] = left if left > ROUNDING * capacities[link] else 0.0
    return list(flows.values()), links
