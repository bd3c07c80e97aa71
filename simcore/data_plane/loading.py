"""One load in virtual time: start-up, parameters in transit, its reports and its records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import ChunkSend, LoadStep
from hwmodels.loading.relay import Relay
from hwmodels.models.load_units import ParameterChunk, Shape, Unit, cut_into_chunks, layers_first, model_units
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S
from simcore.data_plane.residency import Residency

Cut = tuple[tuple[Unit, ...], tuple[ParameterChunk, ...]]
"""The units of a load, and the chunks they are sent in."""

SLACK_NS: Final = 1e-3  # float noise of a time in seconds; a completion is reported at the next whole ns


def rounded_up_ns(at_s: float) -> int:
    """The nanosecond at which an event at ``at_s`` is reported."""
    return math.ceil(at_s * NS_PER_S - SLACK_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One target of a load, from the request until it could run a step, or was given up.

    source: kind of the load's sources (``replica``, ``host``, ``ssd``, ``remote``), of the first if they
    differ. size_bytes: loaded bytes of the part, in whole chunks.
    """

    load: int
    part: Part
    target: Endpoint
    source: str
    size_bytes: int
    seconds: float
    fully_loaded: bool


@dataclass(slots=True, eq=False, kw_only=True)
class LoadRun:
    """A load of ``part`` in progress. flows: hop -> the fabric's number of its present flow.

    requested_s: when the controller requested it. feeders: loads still in progress to a source of this load,
    with the number of that target; followers: loads that have a target of this load as a source. residency:
    the book in which arrived units are noted. links: crossed by the load. relays: by the hop before each;
    relayed: whether there were any.
    """

    action: Load
    part: Part
    chain: Chain
    residency: Residency
    requested_s: float
    feeders: list[tuple["LoadRun", int]]
    links: frozenset[int] = frozenset()
    followers: list["LoadRun"] = field(default_factory=list)
    begun: bool = False
    flows: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)  # the fabric's number -> target; -1: before the begin
    # Per target, when each layer could run a prompt, if every layer is reported.
    layers_s: list[list[float]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    relays: dict[int, Relay] = field(default_factory=dict)
    relayed: bool = False

    def __post_init__(self) -> None:
        targets = range(len(self.action.targets))
        self.open = set(targets)
        self.layers_s = [[] for _ in targets]
        for feeder, _ in self.feeders:
            feeder.followers.append(self)

    def has_open(self, endpoint: Endpoint) -> bool:
        """Whether the load reads from the endpoint, or still brings something to it."""
        action = self.action
        return endpoint in action.sources or endpoint in [action.targets[flow] for flow in self.open]

    def ready_chunks(self) -> int:
        """Number of chunks, from the first on, that every source has."""
        return min(
            [self._ready_at(feeder, target) for feeder, target in self.feeders],
            default=len(self.chain.chunks),
        )

    def _ready_at(self, feeder: "LoadRun", target: int) -> int:
        """Number of chunks, from the first on, that a feeder's target has.

        A feeder with other chunks, or in another order, forwards whole units, as long as they are next here.
        """
        if feeder.part == self.part and feeder.action.layers_first == self.action.layers_first:
            return feeder.chain.complete_chunks(target)
        endpoint, own = feeder.action.targets[target], self.chain
        ready = 0
        for chunk in own.chunks:
            if not self.residency.has_unit(endpoint, self.part.model, own.units[chunk.unit]):
                break
            ready += 1
        return ready

    @property
    def by_layer(self) -> bool:
        """Whether somebody wants each layer as it comes."""
        return self.action.every_layer or bool(self.followers)

    def begin(self) -> list[ChunkSend]:
        """Begin after the start-up; returns the flows to start."""
        self.begun = True
        return self.chain.begin(self.ready_chunks(), not self.by_layer, tuple(self.relays.values()))

    def feed(self) -> list[ChunkSend]:
        """Continue after sources got more; returns the flows to start."""
        return self.chain.feed(self.ready_chunks()) if self.begun else []

    def arrived(self, step: LoadStep, now_s: float) -> list[tuple[int, int]]:
        """(target, unit) that ``step`` completes and that are reported: wanted layers, and the last unit."""
        facts = list[tuple[int, int]]()
        if not step.arrivals:
            return facts
        action, units, model, came = self.action, self.chain.units, self.part.model, self.residency.came
        every_layer, last = action.every_layer, len(units) - 1
        for target, unit, layer in step.arrivals:
            came(action.targets[target], model, units[unit])
            if layer is not None:
                if every_layer:
                    self.layers_s[target].append(now_s)
            elif action.layers_first and units[unit].name == "embedding":
                self.layers_s[target] = [now_s] * len(self.layers_s[target])
            if unit == last or (every_layer and layer is not None):
                facts.append((target, unit))
        return facts

    def is_last(self, unit: int) -> bool:
        """Whether no unit follows this one."""
        return unit == len(self.chain.units) - 1

    def needs(self, other: "LoadRun") -> bool:
        """Whether ``other`` is in progress to a source of this load."""
        return any(feeder is other and target in other.open for feeder, target in self.feeders)

    def more(self, target: int, unit: int) -> Loaded:
        """The controller's event for a layer that is not the last unit."""
        layers = self._layers_in(unit + 1)
        return Loaded(self.action.load, target, layers, False, self.part.first)

    def fully_loaded(self, target: int) -> Loaded:
        """The controller's event for a target that has everything."""
        self.open.discard(target)
        return Loaded(self.action.load, target, len(self.part), True, self.part.first)

    def _layers_in(self, units: int) -> int:
        """How many of the first ``units`` units are layers."""
        before = 1 if self.chain.units[0].layer is None else 0  # the embedding, if it comes first
        return max(0, min(units - before, len(self.part)))

    def stopped(self, cause: str) -> list[LoadStopped]:
        """The controller's events for all targets that will get no more."""
        stopped = []
        for target in sorted(self.open):
            layers = self._layers_in(self.chain.whole_units_at(target))
            stopped.append(LoadStopped(self.action.load, target, layers, cause, self.part.first))
        self.open.clear()
        return stopped

    def record(self, target: int, now_s: float, fully_loaded: bool) -> LoadRecord:
        """The record of a target that gets no more."""
        action, there = self.action, self.chain.chunks[: self.chain.complete_chunks(target)]
        return LoadRecord(
            load=action.load,
            part=self.part,
            target=action.targets[target],
            source=action.sources[0][0],
            size_bytes=sum([chunk.size_bytes for chunk in there]),
            seconds=now_s - self.requested_s,
            fully_loaded=fully_loaded,
        )


class Cutter:
    """The units of each part's parameters, and the chunks they are sent in; ``shapes`` by model.

    Models of one shape share them: a thousand models have few shapes.
    """

    __slots__ = ("_cut", "_found", "_shapes")

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self._found: dict[tuple[Part, bool], Cut] = {}
        self._cut: dict[tuple[Shape, int, int, bool], Cut] = {}

    def cut(self, part: Part, last_embedding: bool) -> Cut:
        """Units and chunks of a load; ``last_embedding``: the embedding comes after the layers."""
        key = part, last_embedding
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._of_shape(part, last_embedding)
        return found

    def _of_shape(self, part: Part, last_embedding: bool) -> Cut:
        key = self._shapes[part.model], part.first, part.last, last_embedding
        found = self._cut.get(key)
        if found is None:
            units = model_units(self._shapes[part.model], layers=range(part.first, part.last))
            units = layers_first(units) if last_embedding else units
            found = self._cut[key] = units, cut_into_chunks(units)
        return found
