"""Links that a flow has booked while its latency lasts, because nobody else is on them."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from hwmodels.fabric.moving import Moving


@dataclass(slots=True)
class Bookings:
    """``by_link``: who has booked it. A booked flow has its rate and its end, but no share of a link yet."""

    by_link: dict[int, Moving] = field(default_factory=dict)

    def book(
        self,
        flow: Moving,
        on_links: Sequence[Mapping[int, Moving]],
        capacities: Sequence[float],
        watched: Container[int],
    ) -> None:
        """A flow whose latency begins: if nobody is on its links or has booked them, its end is known.

        Not on links that are watched: their rates are recorded as they change.
        """
        by_link, rate = self.by_link, flow.spec.cap_bytes_per_s
        for link in flow.links:
            if on_links[link] or link in by_link or link in watched:
                return
            if capacities[link] < rate:
                rate = capacities[link]
        if rate:
            for link in flow.links:
                by_link[link] = flow
            flow.booked, flow.rate, flow.since_s = True, rate, flow.due_s
            flow.due_s += flow.size_bytes / rate

    def give_back(self, flow: Moving) -> None:
        """The flow has no booking any more."""
        flow.booked = False
        for link in flow.links:
            del self.by_link[link]
