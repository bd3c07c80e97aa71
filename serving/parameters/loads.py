"""Loads in progress: the control plane's record of parameters in transit, from request to last layer.

For each target a load is in progress, complete or stopped (docs/contributing/STATES.md); layers that arrived
before the stop stay. A load is forgotten once it is in progress for none of its targets.
"""

from collections.abc import Mapping, Sequence

from serving.parameters.residency import Residency
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Loaded, LoadStopped

UNDER_WAY, THERE, STOPPED = "under way", "there", "stopped"


class LoadInFlight:
    """One load and its state per target. ``Residency`` has the number of loaded layers."""

    __slots__ = ("load", "part", "states")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.part = load.part
        self.states = [UNDER_WAY] * len(load.targets)


class Loads:
    """All loads in progress, by id. ``residency``: the book in which they note what has arrived."""

    __slots__ = ("_busy", "_to", "done", "in_flight", "residency", "stopped")

    def __init__(self, residency: Residency | None = None) -> None:
        self.residency = Residency() if residency is None else residency
        self.in_flight: dict[int, LoadInFlight] = {}
        self.done = self.stopped = 0  # targets with everything, targets without
        self._busy: dict[Endpoint, int] = {}  # source -> number of loads in progress from it
        self._to: dict[int, LoadInFlight] = {}  # replica -> the load in progress to it

    def begin(self, load: Load) -> None:
        """Begin a requested load. It needs a source, at least one target, and an id of its own."""
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
        """Number of loads in progress per source; the returned mapping changes with them."""
        return self._busy

    def to(self, replica: int) -> LoadInFlight | None:
        """The load in progress to a replica."""
        return self._to.get(replica)

    def loaded(self, event: Loaded) -> Endpoint | None:
        """Note complete layers at a target; returns the target once it has everything."""
        flight = self._counted(event)
        if not event.fully_loaded:
            return None
        self.done += 1
        return self._end(flight, event.target, THERE)

    def ended_early(self, event: LoadStopped) -> Endpoint:
        """Note that a target will get no more; returns it."""
        flight = self._counted(event)
        self.stopped += 1
        return self._end(flight, event.target, STOPPED)

    def _counted(self, event: Loaded | LoadStopped) -> LoadInFlight:
        """The load of a report, after noting the reported layers."""
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
            self.residency.clear(endpoint)  # the caches decide whether a copy in its memory stays
        if UNDER_WAY not in flight.states:
            del self.in_flight[load.load]
            for source in load.sources:
                self._busy[source] -= 1
                if not self._busy[source]:
                    del self._busy[source]
        return endpoint


def replicas_of(loads: Sequence[Load]) -> set[int]:
    """The replicas that are targets of ``loads``."""
    return {number for load in loads for kind, number in load.targets if kind == "replica"}
