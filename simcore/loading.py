"""One load in virtual time: start-up, parameters on their way, what the controller is told of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hwmodels.loading.plan import Send, Step
from hwmodels.loading.ranks import Ranks
from serving.actions import Load
from serving.events import Loaded, LoadStopped


@dataclass(slots=True)
class LoadRun:
    """A load under way. flows: (rank, hop, chunk) -> the fabric's number of what moves now.

    ready_at_end_s: from the last byte at a stop to its first step (the engine's own preparations). wished_s:
    when the controller asked for it.
    """

    action: Load
    ranks: Ranks
    ready_at_end_s: dict[int, float]
    wished_s: float
    flows: dict[tuple[int, int, int], int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)  # the fabric's number -> stop; stop 0: to begin
    layers: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.open = set(range(1, len(self.action.stops)))
        self.layers = dict.fromkeys(self.open, 0)

    def sent(self, send: Send, flow: int) -> None:
        """The fabric moves this now."""
        self.flows[send.rank, send.hop, send.chunk] = flow

    def finished(self, send: Send) -> Step:
        """The fabric moved it."""
        del self.flows[send.rank, send.hop, send.chunk]
        return self.ranks.finished(send.rank, send.hop, send.chunk)

    def arrived(self, step: Step) -> Iterable[tuple[int, bool]]:
        """(stop, whether everything is there) for what ``step`` completes, layers counted."""
        for arrival in step.arrivals:
            if arrival.layer is not None:
                self.layers[arrival.hop] += 1
            whole = arrival.unit == self.ranks.unit_count - 1
            if whole or arrival.layer is not None:
                yield arrival.hop, whole

    def report(self, stop: int, whole: bool) -> Loaded:
        """What the controller is told of a stop."""
        if whole:
            self.open.discard(stop)
        return Loaded(self.action.load, stop, self.layers[stop], whole)

    def stopped(self, cause: str) -> list[LoadStopped]:
        """What the controller is told of every stop that will get no more."""
        reports = [
            LoadStopped(self.action.load, stop, self.layers[stop], cause) for stop in sorted(self.open)
        ]
        self.open.clear()
        return reports
