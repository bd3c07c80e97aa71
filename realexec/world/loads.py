"""Loads in progress: which unit of a model is whole where, and what each target pulls next.

A target pulls unit after unit from a source that has it whole, and is itself a source from its first unit on.
So a chain of loads is a pipeline of units, and its length hardly affects how long it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from realexec.wire.messages import Pull, Pulled, StopPull
from realexec.world.models import Models
from realexec.world.slots import Slots
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Event, Loaded, LoadStopped

# While a worker pulls one unit it already has the order for the next, so no time passes between two.
AHEAD: Final = 2
_STORES: Final = ("ssd", "remote")


def units_of(first: int, last: int, layers: int, layers_first: bool) -> list[int]:
    """List the units of layers [first, last) of ``layers``, in loading order: see `Pull`."""
    embedding = [0] if first == 0 else []
    head = [layers + 1] if last == layers else []
    own = list(range(first + 1, last + 1))
    return [*own, *embedding, *head] if layers_first else [*embedding, *own, *head]


@dataclass(slots=True, eq=False)
class TargetLoad:
    """A load to one target. ``asked``: number of units ordered from its worker; ``came``: units now whole."""

    action: Load
    target: int
    units: list[int]
    asked: int = 0
    came: set[int] = field(default_factory=set)

    @property
    def endpoint(self) -> Endpoint:
        """The target."""
        return self.action.targets[self.target]

    @property
    def first(self) -> int:
        """The first layer to load."""
        return 0 if self.action.layers is None else self.action.layers[0]

    @property
    def whole_units(self) -> int:
        """The number of units that are whole, from the first on."""
        return next((at for at, unit in enumerate(self.units) if unit not in self.came), len(self.units))

    def layers_in(self, units: int, layers: int) -> int:
        """Count the layers among the first ``units`` units."""
        return sum(1 <= unit <= layers for unit in self.units[:units])


class LoadBook:
    """All loads of a run. ``whole``: the units that are whole at a replica, or of a model in a host's memory.

    ``tell`` takes events for the controller. ``loads``, ``pulled_bytes``: for the run's report.
    """

    def __init__(self, slots: Slots, models: Models, tell: Callable[[Event], None]) -> None:
        self._slots, self._models, self._tell = slots, models, tell
        self._open: dict[tuple[int, int], TargetLoad] = {}
        self.whole: dict[Endpoint, set[int]] = {}
        self._copies: dict[tuple[Endpoint, str], set[int]] = {}  # whole units of a model in a host's memory
        self._gone: dict[Endpoint, str] = {}
        self.loads = 0
        self.stopped = 0
        self.pulled_bytes = 0
        self.from_loading = 0  # units pulled from a source that was still loading

    def __len__(self) -> int:
        return len(self._open)

    def layers_there(self, replica: int) -> int:
        """Count the layers that a replica has, from the first on without a gap."""
        layers, there = self._layers_of(replica), self.whole.get(("replica", replica), set())
        return next((layer for layer in range(layers) if layer + 1 not in there), layers)

    def is_full(self, replica: int) -> bool:
        """Whether a replica has the whole model."""
        return len(self.whole.get(("replica", replica), ())) == self._layers_of(replica) + 2

    def _layers_of(self, replica: int) -> int:
        """Count the layers of the model that a replica is a part of."""
        part = self._slots.part_of.get(replica)
        return self._models.layers_of("" if part is None else part.model)

    def fill(self, replica: int) -> None:
        """Note that a replica has all its parameters."""
        layers = self._layers_of(replica)
        first, last = self._slots.layers_of(replica) or (0, layers)
        self.whole["replica", replica] = set(units_of(first, last, layers, False))

    def _there(self, endpoint: Endpoint, model: str) -> set[int]:
        """Return a model's whole units at an endpoint. Hosts with copies from the start have all of them."""
        if endpoint[0] != "host":
            return self.whole.get(endpoint, set())
        return self._copies.setdefault((endpoint, model), set(range(self._models.layers_of(model) + 2)))

    def clear(self, endpoint: Endpoint) -> None:
        """Note that an endpoint has no parameters any more."""
        self.whole[endpoint] = set()

    def begin(self, action: Load) -> None:
        """Begin a load: every target pulls from now on."""
        layers = self._models.layers_of(action.model)
        first, last = action.layers or (0, layers)
        for target, endpoint in enumerate(action.targets):
            cause = self._refusal(action, endpoint)
            if cause:
                self._tell(LoadStopped(action.load, target, 0, cause, first))
                continue
            load = TargetLoad(action, target, units_of(first, last, layers, action.layers_first))
            self._open[action.load, target] = load
            self._begun(endpoint, action.model)
        for load in [load for key, load in self._open.items() if key[0] == action.load]:
            self._ask(load)

    def _begun(self, endpoint: Endpoint, model: str) -> None:
        """Note that a host into whose memory a model is loaded did not have it before."""
        if endpoint[0] == "host":
            self._copies.setdefault((endpoint, model), set())
        else:
            self.whole.setdefault(endpoint, set())

    def _refusal(self, action: Load, target: Endpoint) -> str:
        """Return why the load cannot begin, or an empty string."""
        for endpoint in (*action.sources, target):
            if endpoint in self._gone:
                return self._gone[endpoint]
        comes = {load.endpoint for load in self._open.values()}
        for endpoint in action.sources:
            if endpoint[0] == "replica" and endpoint not in comes and not self.whole.get(endpoint):
                return f"replica {endpoint[1]}, its source, has no parameters"
        return ""

    def _ask(self, load: TargetLoad) -> None:
        """Order the units that the target's worker can pull now."""
        kind, number = load.endpoint
        slot = self._slots.of(number) if kind == "replica" else number
        while load.asked < len(load.units) and load.asked - len(load.came) < AHEAD:
            unit = load.units[load.asked]
            source = self._source_of(load.action, unit, load.asked)
            if source is None:
                return
            load.asked += 1
            model = self._models.number(load.action.model)
            layers = self._slots.layers_of(source[1]) if source[0] == "replica" else None
            self._slots.send(
                slot,
                Pull(
                    load=load.action.load,
                    unit=unit,
                    source=self._place_of(source),
                    place=kind,
                    model=model,
                    layers=layers,
                ),
            )

    def _source_of(self, action: Load, unit: int, turn: int) -> Endpoint | None:
        """Select the unit's source: sources take turns; None if the unit is not whole at that source."""
        source = action.sources[turn % len(action.sources)]
        if source[0] in _STORES:
            return source
        return source if unit in self._there(source, action.model) else None

    def _place_of(self, source: Endpoint) -> tuple[str, int]:
        kind, number = source
        return (kind, self._slots.of(number)) if kind == "replica" else (kind, number)

    def pulled(self, slot: int, message: Pulled) -> None:
        """Handle a worker's report of a unit."""
        load = self._of(slot, message.load)
        if load is None:
            return  # it was stopped meanwhile
        if message.cause:
            self._end_early(load, message.cause)
            return
        self.pulled_bytes += message.size_bytes
        self.from_loading += any(
            source == other.endpoint for source in load.action.sources for other in self._open.values()
        )
        load.came.add(message.unit)
        self._there(load.endpoint, load.action.model).add(message.unit)
        self._report(load, message.unit)
        self._ask(load)
        for other in list(self._open.values()):
            if load.endpoint in other.action.sources:
                self._ask(other)

    def _of(self, slot: int, load: int) -> TargetLoad | None:
        for (number, _), target_load in self._open.items():
            if number == load and self._place_of(target_load.endpoint)[1] == slot:
                return target_load
        return None

    def _report(self, load: TargetLoad, unit: int) -> None:
        if len(load.came) == len(load.units):
            del self._open[load.action.load, load.target]
            self.loads += 1
            layers = load.layers_in(len(load.units), self._models.layers_of(load.action.model))
            self._tell(Loaded(load.action.load, load.target, layers, True, load.first))
        elif load.action.every_layer and 1 <= unit <= (most := self._models.layers_of(load.action.model)):
            layers = load.layers_in(load.whole_units, most)
            self._tell(Loaded(load.action.load, load.target, layers, False, load.first))

    def stop(self, load: int, cause: str) -> None:
        """Stop a load that the controller no longer wants."""
        for target_load in [target_load for (number, _), target_load in self._open.items() if number == load]:
            self._end_early(target_load, cause)

    def lose(self, endpoint: Endpoint, cause: str) -> None:
        """Note that an endpoint is lost: loads from it or to it stop."""
        self._gone[endpoint] = cause
        self.whole.pop(endpoint, None)
        self._copies = {key: units for key, units in self._copies.items() if key[0] != endpoint}
        for load in list(self._open.values()):
            if endpoint == load.endpoint or endpoint in load.action.sources:
                self._end_early(load, cause)

    def _end_early(self, load: TargetLoad, cause: str) -> None:
        """Stop one target's load. Its whole units stay; loads that use it as a source stop too."""
        if self._open.pop((load.action.load, load.target), None) is None:
            return
        self.stopped += 1
        self._slots.send(self._place_of(load.endpoint)[1], StopPull(load.action.load))
        layers = load.layers_in(load.whole_units, self._models.layers_of(load.action.model))
        self._tell(LoadStopped(load.action.load, load.target, layers, cause, load.first))
        why = f"load {load.action.load} to its source stopped: {cause}"
        for other in list(self._open.values()):
            if load.endpoint in other.action.sources:
                self._end_early(other, why)
