"""Loads under way: which unit of a model is whole where, and what each target pulls next.

A target pulls unit after unit from a source that has it whole; it is a source itself from its first unit on.
So a chain of loads is a pipeline of units, and how long it takes hardly depends on its length.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from realexec.messages import Pull, Pulled, StopPull
from realexec.world.slots import Slots
from serving.vocabulary.actions import Endpoint, Load, Span
from serving.vocabulary.events import Event, Loaded, LoadStopped

# While one unit comes the worker knows of the next, so no time passes between two.
AHEAD: Final = 2
_STORES: Final = ("ssd", "remote")


def units_of(first: int, last: int, layers: int, layers_first: bool) -> list[int]:
    """The units of layers [first, last) of ``layers``, in the order they are loaded: see `Pull`."""
    embedding = [0] if first == 0 else []
    head = [layers + 1] if last == layers else []
    own = list(range(first + 1, last + 1))
    return [*own, *embedding, *head] if layers_first else [*embedding, *own, *head]


@dataclass(slots=True, eq=False)
class TargetLoad:
    """A load to one of its targets. ``asked``: units that were told to its worker; ``came``: those whole."""

    action: Load
    target: int
    units: list[int]
    asked: int = 0
    came: set[int] = field(default_factory=set)

    @property
    def endpoint(self) -> Endpoint:
        """Where it goes."""
        return self.action.targets[self.target]

    @property
    def first(self) -> int:
        """Its first layer."""
        return 0 if self.action.layers is None else self.action.layers[0]

    @property
    def whole_units(self) -> int:
        """Units that are whole, from the first on."""
        return next((at for at, unit in enumerate(self.units) if unit not in self.came), len(self.units))

    def layers_in(self, units: int, layers: int) -> int:
        """Layers among the first so many units."""
        return sum(1 <= unit <= layers for unit in self.units[:units])


class LoadBook:
    """All loads of a run. ``whole``: the units that are whole at a replica or in a host's memory.

    ``tell`` takes facts for the controller. ``layers``: of the model. ``loads``, ``pulled_bytes``: of the
    summary.
    """

    def __init__(self, slots: Slots, layers: int, tell: Callable[[Event], None]) -> None:
        self._slots, self._layers, self._tell = slots, layers, tell
        self._open: dict[tuple[int, int], TargetLoad] = {}
        self.whole: dict[Endpoint, set[int]] = {}
        self._gone: dict[Endpoint, str] = {}
        self.loads = 0
        self.stopped = 0
        self.pulled_bytes = 0
        self.from_loading = 0  # units that came from a source which was still loading

    def __len__(self) -> int:
        return len(self._open)

    def layers_there(self, replica: int) -> int:
        """How many layers, from the first on, a replica has with its embedding."""
        there = self.whole.get(("replica", replica), set())
        return next((layer for layer in range(self._layers) if layer + 1 not in there), self._layers)

    def is_full(self, replica: int) -> bool:
        """Whether a replica has the whole model."""
        return len(self.whole.get(("replica", replica), ())) == self._layers + 2

    def fill(self, endpoint: Endpoint, layers: Span | None = None) -> None:
        """These layers are there, with embedding and head; None: the whole model is."""
        first, last = layers or (0, self._layers)
        self.whole[endpoint] = set(units_of(first, last, self._layers, False))

    def clear(self, endpoint: Endpoint) -> None:
        """Nothing is there any more."""
        self.whole[endpoint] = set()

    def begin(self, action: Load) -> None:
        """Every target pulls from now on."""
        first, last = action.layers or (0, self._layers)
        for target, endpoint in enumerate(action.targets):
            cause = self._refusal(action, endpoint)
            if cause:
                self._tell(LoadStopped(action.load, target, 0, cause, first))
                continue
            one = TargetLoad(action, target, units_of(first, last, self._layers, action.layers_first))
            self._open[action.load, target] = one
            self.whole.setdefault(endpoint, set())
        for one in [one for key, one in self._open.items() if key[0] == action.load]:
            self._ask(one)

    def _refusal(self, action: Load, target: Endpoint) -> str:
        """Why it cannot begin; empty: it can."""
        for endpoint in (*action.sources, target):
            if endpoint in self._gone:
                return self._gone[endpoint]
        comes = {one.endpoint for one in self._open.values()}
        for endpoint in action.sources:
            if endpoint[0] == "replica" and endpoint not in comes and not self.whole.get(endpoint):
                return f"replica {endpoint[1]}, its source, has no parameters"
        return ""

    def _ask(self, one: TargetLoad) -> None:
        """Tell the worker of the target what it can pull now."""
        kind, number = one.endpoint
        slot = self._slots.of(number) if kind == "replica" else number
        while one.asked < len(one.units) and one.asked - len(one.came) < AHEAD:
            unit = one.units[one.asked]
            source = self._source_of(one.action, unit, one.asked)
            if source is None:
                return
            one.asked += 1
            self._slots.send(slot, Pull(one.action.load, unit, self._place_of(source), kind))

    def _source_of(self, action: Load, unit: int, turn: int) -> Endpoint | None:
        """The source that a unit is pulled from: they take turns, and a unit must be whole there."""
        source = action.sources[turn % len(action.sources)]
        if source[0] in _STORES:
            return source
        if source[0] == "host" and source not in self.whole:
            self.fill(source)  # what a host is said to have from the start is there from the start
        return source if unit in self.whole.get(source, ()) else None

    def _place_of(self, source: Endpoint) -> tuple[str, int]:
        kind, number = source
        return (kind, self._slots.of(number)) if kind == "replica" else (kind, number)

    def pulled(self, slot: int, message: Pulled) -> None:
        """A worker tells of a unit."""
        one = self._of(slot, message.load)
        if one is None:
            return  # it was stopped meanwhile
        if message.cause:
            self._end_early(one, message.cause)
            return
        self.pulled_bytes += message.size_bytes
        self.from_loading += any(
            source == other.endpoint for source in one.action.sources for other in self._open.values()
        )
        one.came.add(message.unit)
        self.whole[one.endpoint].add(message.unit)
        self._report(one, message.unit)
        self._ask(one)
        for other in list(self._open.values()):
            if one.endpoint in other.action.sources:
                self._ask(other)

    def _of(self, slot: int, load: int) -> TargetLoad | None:
        for (number, _), one in self._open.items():
            if number == load and self._place_of(one.endpoint)[1] == slot:
                return one
        return None

    def _report(self, one: TargetLoad, unit: int) -> None:
        if len(one.came) == len(one.units):
            del self._open[one.action.load, one.target]
            self.loads += 1
            layers = one.layers_in(len(one.units), self._layers)
            self._tell(Loaded(one.action.load, one.target, layers, True, one.first))
        elif one.action.every_layer and 1 <= unit <= self._layers:
            layers = one.layers_in(one.whole_units, self._layers)
            self._tell(Loaded(one.action.load, one.target, layers, False, one.first))

    def stop(self, load: int, cause: str) -> None:
        """The controller wants no more of it."""
        for one in [one for (number, _), one in self._open.items() if number == load]:
            self._end_early(one, cause)

    def lose(self, endpoint: Endpoint, cause: str) -> None:
        """Nothing can be read from there or brought there any more."""
        self._gone[endpoint] = cause
        self.whole.pop(endpoint, None)
        for one in list(self._open.values()):
            if endpoint == one.endpoint or endpoint in one.action.sources:
                self._end_early(one, cause)

    def _end_early(self, one: TargetLoad, cause: str) -> None:
        """What is whole stays; whoever waits for the rest of it gets no more either."""
        if self._open.pop((one.action.load, one.target), None) is None:
            return
        self.stopped += 1
        self._slots.send(self._place_of(one.endpoint)[1], StopPull(one.action.load))
        layers = one.layers_in(one.whole_units, self._layers)
        self._tell(LoadStopped(one.action.load, one.target, layers, cause, one.first))
        why = f"load {one.action.load} to its source stopped: {cause}"
        for other in list(self._open.values()):
            if one.endpoint in other.action.sources:
                self._end_early(other, why)
