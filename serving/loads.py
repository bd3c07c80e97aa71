"""Loads under way: what the control plane knows of parameters that travel, from wish to last layer.

One load is at every stop (the first excepted, which has all) in one of three states:

| state     | loaded                                  | load stopped             |
|-----------|-----------------------------------------|--------------------------|
| under way | more layers; whole: there               | stopped, keeps its layers|
| there     | refused: nothing was missing            | refused: nothing to stop |
| stopped   | refused: nothing is sent any more       | refused: it stopped      |

A load is forgotten when no stop of it is under way.
"""

from collections.abc import Sequence

from serving.actions import Load, Stop
from serving.events import Loaded, LoadStopped

UNDER_WAY, THERE, STOPPED = "under way", "there", "stopped"


class LoadInFlight:
    """One load: per stop its state, and how many layers are whole there."""

    __slots__ = ("layers", "load", "states")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.layers = [0] * len(load.stops)
        self.states = [THERE] + [UNDER_WAY] * (len(load.stops) - 1)


class Loads:
    """All loads under way, by id."""

    __slots__ = ("done", "in_flight", "stopped")

    def __init__(self) -> None:
        self.in_flight: dict[int, LoadInFlight] = {}
        self.done = self.stopped = 0  # stops that got everything, stops that did not

    def begin(self, load: Load) -> None:
        """A load was asked for. It needs a source and at least one target, and an id of its own."""
        assert load.load not in self.in_flight, f"load {load.load} is under way already"
        assert len(set(load.stops)) == len(load.stops) > 1, "a load needs different stops, a source first"
        self.in_flight[load.load] = LoadInFlight(load)

    def loaded(self, event: Loaded) -> Stop | None:
        """More layers are whole at a stop; the stop itself when everything is there."""
        flight = self._under_way(event.load, event.stop)
        assert event.layers >= flight.layers[event.stop], "a layer that was whole is not"
        flight.layers[event.stop] = event.layers
        if not event.whole:
            return None
        self.done += 1
        self._end(flight, event.stop, THERE)
        return flight.load.stops[event.stop]

    def ended_early(self, event: LoadStopped) -> Stop:
        """A stop will get no more; returns it."""
        flight = self._under_way(event.load, event.stop)
        assert event.layers >= flight.layers[event.stop], "a layer that was whole is not"
        flight.layers[event.stop] = event.layers
        self.stopped += 1
        self._end(flight, event.stop, STOPPED)
        return flight.load.stops[event.stop]

    def _under_way(self, load: int, stop: int) -> LoadInFlight:
        flight = self.in_flight.get(load)
        assert flight is not None, f"a report of load {load}, which is not under way"
        assert 0 < stop < len(flight.states) and flight.states[stop] is UNDER_WAY, (
            f"a report of load {load} at stop {stop}, where it is not under way"
        )
        return flight

    def _end(self, flight: LoadInFlight, stop: int, state: str) -> None:
        flight.states[stop] = state
        if UNDER_WAY not in flight.states:
            del self.in_flight[flight.load.load]


def replicas_of(loads: Sequence[Load]) -> set[int]:
    """The replicas that ``loads`` bring parameters to."""
    return {number for load in loads for kind, number in load.stops[1:] if kind == "replica"}
