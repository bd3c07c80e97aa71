"""What links carried: bytes by kind, the highest rate, and if requested the rate over time."""

from array import array

from hwmodels.fabric.flow import KINDS


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
