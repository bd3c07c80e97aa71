"""One load in virtual time: start-up, parameters on their way, what is told of it and what is kept of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import ChunkSend, LoadStep
from hwmodels.loading.units import ParameterChunk, Shape, Unit, cut_into_chunks, layers_first, model_units
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S
from simcore.data_plane.residency import Residency

SLACK_NS: Final = 1e-3  # float noise of a time in seconds; a completion is reported at the next whole ns


def rounded_up_ns(at_s: float) -> int:
    """The nanosecond at which what happens at ``at_s`` is told."""
    return math.ceil(at_s * NS_PER_S - SLACK_NS)


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What one target of a load took: from the wish to the moment it could run a step, or was given up.

    source: kind of the load's sources (``replica``, ``host``, ``ssd``, ``remote``), of the first where they
    differ. size_bytes: what is there of the part, in whole chunks.
    """

    load: int
    part: Part
    target: Endpoint
    source: str
    size_bytes: int
    seconds: float
    fully_loaded: bool


@dataclass(slots=True, eq=False)
class LoadRun:
    """A load of ``part`` under way. flows: hop -> the fabric's number of what moves there now.

    requested_s: when the controller asked for it. feeders: the loads that still bring parameters to a source
    of this one, with the target that it is there; followers: those that have a target of this one as a
    source. residency: the book of what is where, in which what comes is written. links: that it crosses.
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
    waits: dict[int, int] = field(default_factory=dict)  # the fabric's number -> target; -1: to begin
    # Since when each of them could run a prompt, if every layer is told.
    layers_s: list[list[float]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        targets = range(len(self.action.targets))
        self.open = set(targets)
        self.layers_s = [[] for _ in targets]
        for feeder, _ in self.feeders:
            feeder.followers.append(self)

    def has_open(self, endpoint: Endpoint) -> bool:
        """Whether it reads from there, or still brings something there."""
        action = self.action
        return endpoint in action.sources or endpoint in [action.targets[one] for one in self.open]

    def ready_chunks(self) -> int:
        """Chunks, from the first on, that every source has."""
        return min(
            [self._ready_at(feeder, target) for feeder, target in self.feeders],
            default=len(self.chain.chunks),
        )

    def _ready_at(self, feeder: "LoadRun", target: int) -> int:
        """Chunks, from the first on, that a feeder's target has.

        One that gets others, or in another order, passes on whole units, as far as they are the next here.
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

    def begin(self) -> list[ChunkSend]:
        """The start-up is over: what may move now."""
        self.begun = True
        return self.chain.begin(self.ready_chunks(), not (self.action.every_layer or self.followers))

    def feed(self) -> list[ChunkSend]:
        """The sources have more: what may move now."""
        return self.chain.feed(self.ready_chunks()) if self.begun else []

    def arrived(self, step: LoadStep, now_s: float) -> list[tuple[int, int]]:
        """(target, unit) for what ``step`` completes that is to be told: layers, and the last unit of all."""
        told = []
        for target, unit, layer in step.arrivals:
            self.residency.came(self.action.targets[target], self.part.model, self.chain.units[unit])
            if layer is not None:
                if self.action.every_layer:
                    self.layers_s[target].append(now_s)
            elif self.action.layers_first and self.chain.units[unit].name == "embedding":
                self.layers_s[target] = [now_s] * len(self.layers_s[target])
            if layer is not None or self.is_last(unit):
                told.append((target, unit))
        return told

    def is_last(self, unit: int) -> bool:
        """Whether nothing comes after this unit."""
        return unit == len(self.chain.units) - 1

    def needs(self, other: "LoadRun") -> bool:
        """Whether a source of this one is a target to which ``other`` is under way."""
        return any(feeder is other and target in other.open for feeder, target in self.feeders)

    def more(self, target: int, unit: int) -> Loaded:
        """What the controller is told when a layer has come that is not the last unit."""
        layers = self._layers_in(unit + 1)
        return Loaded(self.action.load, target, layers, False, self.part.first)

    def fully_loaded(self, target: int) -> Loaded:
        """What the controller is told of a target that has everything."""
        self.open.discard(target)
        return Loaded(self.action.load, target, len(self.part), True, self.part.first)

    def _layers_in(self, units: int) -> int:
        """How many of the first so many units are layers."""
        before = 1 if self.chain.units[0].layer is None else 0  # the embedding, where it comes first
        return max(0, min(units - before, len(self.part)))

    def stopped(self, cause: str) -> list[LoadStopped]:
        """What the controller is told of every target that will get no more."""
        stopped = []
        for target in sorted(self.open):
            layers = self._layers_in(self.chain.whole_units_at(target))
            stopped.append(LoadStopped(self.action.load, target, layers, cause, self.part.first))
        self.open.clear()
        return stopped

    def record(self, target: int, now_s: float, fully_loaded: bool) -> LoadRecord:
        """What is kept of a target that gets no more."""
        action, there = self.action, self.chain.chunks[: self.chain.complete_chunks(target)]
        return LoadRecord(
            action.load,
            self.part,
            action.targets[target],
            action.sources[0][0],
            sum([chunk.size_bytes for chunk in there]),
            now_s - self.requested_s,
            fully_loaded,
        )


class Cutter:
    """The units of each part's parameters, and the chunks they are sent in; ``shapes`` by model."""

    __slots__ = ("_found", "_shapes")

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self._found: dict[tuple[Part, bool], tuple[tuple[Unit, ...], tuple[ParameterChunk, ...]]] = {}

    def cut(self, part: Part, last_embedding: bool) -> tuple[tuple[Unit, ...], tuple[ParameterChunk, ...]]:
        """Those of a load; ``last_embedding``: it comes after the layers."""
        key = part, last_embedding
        found = self._found.get(key)
        if found is None:
            units = model_units(self._shapes[part.model], layers=range(part.first, part.last))
            units = layers_first(units) if last_embedding else units
            found = self._found[key] = units, cut_into_chunks(units)
        return found
