"""Links that a flow has booked during its latency, because no other flow uses them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwmodels.fabric.moving import Moving


@dataclass(slots=True)
class Bookings:
    """``by_link``: the flow that booked it. A booked flow has rate and end, but no share of a link yet."""

    by_link: dict[int, Moving] = field(default_factory=dict)

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
