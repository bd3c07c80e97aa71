"""Loads under way: what the control plane knows of parameters that travel, from wish to last layer.

One load is at every target under way, there or stopped (docs/STATES.md); what came before it stopped stays. A
load is forgotten when no target of it is under way.
"""

from collections.abc import Mapping, Sequence

from serving.parameters.residency import Residency
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Loaded, LoadStopped

UNDER_WAY, THERE, STOPPED = "under way", "there", "stopped"


class LoadInFlight:
    """One load: what it brings, and per target its state. How many layers are there is in ``Residency``."""

    __slots__ = ("load", "part", "states")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.part = load.part
        self.states = [UNDER_WAY] * len(load.targets)


class Loads:
    """All loads under way, by id. ``residency``: the book in which they write what has come."""

    __slots__ = ("_busy", "_to", "done", "in_flight", "residency", "stopped")

    def __init__(self, residency: Residency | None = None) -> None:
        self.residency = Residency() if residency is None else residency
        self.in_flight: dict[int, LoadInFlight] = {}
        self.done = self.stopped = 0  # targets that got everything, targets that did not
        self._busy: dict[Endpoint, int] = {}  # source -> how many loads under way have it
        self._to: dict[int, LoadInFlight] = {}  # replica -> the load that is under way to it

    def begin(self, load: Load) -> None:
        """A load was asked for. It needs a source and at least one target, and an id of its own."""
        assert load.load not in self.in_flight, f"load {load.load} is under way already"
        endpoints = (*load.sources, *load.targets)
        assert load.sources and load.targets and len(set(endpoints)) == len(endpoints), (
            f"load {load.load} needs sources and targets, each once"
        )
        flight = self.in_flight[load.load] = LoadInFlight(load)
        for source in load.sources:
            self._busy[source] = self._busy.get(source, 0) + 1
        for kind, number in load.targets:
            if kind == "replica":
                other = self._to.setdefault(number, flight)
                assert other is flight, (
                    f"load {load.load} is to replica {number}, as is load {other.load.load}"
                )
            self.residency.begin((kind, number), flight.part)

    def sending(self) -> Mapping[Endpoint, int]:
        """How many loads under way each source has; kept up to date: what is returned changes with them."""
        return self._busy

    def to(self, replica: int) -> LoadInFlight | None:
        """The load that is under way to a replica."""
        return self._to.get(replica)

    def loaded(self, event: Loaded) -> Endpoint | None:
        """More layers are whole at a target; the target itself when everything is there."""
        flight = self._counted(event)
        if not event.fully_loaded:
            return None
        self.done += 1
        return self._end(flight, event.target, THERE)

    def ended_early(self, event: LoadStopped) -> Endpoint:
        """A target will get no more; returns it."""
        flight = self._counted(event)
        self.stopped += 1
        return self._end(flight, event.target, STOPPED)

    def _counted(self, event: Loaded | LoadStopped) -> LoadInFlight:
        """The load of a report, with the layers that the report tells of."""
        flight, target = self.in_flight.get(event.load), event.target
        assert flight is not None, f"a report of load {event.load}, which is not under way"
        assert 0 <= target < len(flight.states) and flight.states[target] is UNDER_WAY, (
            f"a report of load {event.load} at target {target}, where it is not under way"
        )
        assert event.first == flight.part.first, (
            f"a report of load {event.load} from layer {event.first} on, and it begins at {flight.part.first}"
        )
        fully_loaded = type(event) is Loaded and event.fully_loaded
        self.residency.came(flight.load.targets[target], flight.part, event.layers, fully_loaded)
        return flight

    def _end(self, flight: LoadInFlight, target: int, state: str) -> Endpoint:
        load = flight.load
        flight.states[target] = state
        endpoint = load.targets[target]
        if endpoint[0] == "replica":
            del self._to[endpoint[1]]
        else:
            self.residency.clear(endpoint)  # whether a copy in its memory stays is the caches' matter
        if UNDER_WAY not in flight.states:
            del self.in_flight[load.load]
            for source in load.sources:
                self._busy[source] -= 1
                if not self._busy[source]:
                    del self._busy[source]
        return endpoint


def replicas_of(loads: Sequence[Load]) -> set[int]:
    """The replicas that ``loads`` bring parameters to."""
    return {number for load in loads for kind, number in load.targets if kind == "replica"}
