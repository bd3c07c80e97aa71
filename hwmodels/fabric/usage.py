"""What links carried: bytes by kind, the highest rate, and on request the rate over time."""

from array import array

from hwmodels.fabric.flow import KINDS


class Usage:
    """Counters by link. A flow is counted when it ends, so that a change of its rate costs nothing here.

    carried_bytes: by kind, then by link, of flows that ended. peak_bytes_per_s: by link. series: of the links
    that are watched, time and total rate from then on, at every change, one after the other.
    """

    __slots__ = ("carried_bytes", "peak_bytes_per_s", "series")

    def __init__(self, links: int) -> None:
        self.carried_bytes: dict[str, list[float]] = {kind: [0.0] * links for kind in KINDS}
        self.peak_bytes_per_s: list[float] = [0.0] * links
        self.series: dict[int, array[float]] = {}

    def count(self, kind: str, links: tuple[int, ...], size_bytes: float) -> None:
        """A flow ended and had moved that much over each of its links."""
        carried = self.carried_bytes[kind]
        for link in links:
            carried[link] += size_bytes

    def watch(self, link: int, at_s: float, rate_bytes_per_s: float) -> None:
        """Record the link's rate from now on."""
        self.series.setdefault(link, array("d", (at_s, rate_bytes_per_s)))

    def note(self, link: int, at_s: float, rate_bytes_per_s: float) -> None:
        """The total rate of a watched link is this from now on; of several at one time the last stays."""
        points = self.series[link]
        if points[-2] == at_s:
            del points[-2:]
        if not points or points[-1] != rate_bytes_per_s:
            points.extend((at_s, rate_bytes_per_s))

    def note_span(
        self, links: tuple[int, ...], since_s: float, until_s: float, rate_bytes_per_s: float
    ) -> None:
        """Of the links those that are watched had this rate for so long: a flow had them to itself."""
        for link in links:
            if link in self.series:
                self.note(link, since_s, rate_bytes_per_s)
                self.note(link, until_s, 0.0)
