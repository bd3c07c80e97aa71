"""One load in virtual time: start-up, parameters on their way, what is told of it and what is kept of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import Send, Step
from serving.vocabulary.actions import Load, Stop
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.units import NS_PER_S

SLACK_NS: Final = 1e-3  # float noise of a time in seconds; a completion is reported at the next whole ns


def whole_ns(at_s: float) -> int:
    """The nanosecond at which what happens at ``at_s`` is told."""
    return math.ceil(at_s * NS_PER_S - SLACK_NS)


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What one target of a load took: from the wish to the moment it could run a step, or was given up.

    source: kind of the load's sources (``replica``, ``host``, ``ssd``, ``remote``), of the first where they
    differ. size_bytes: what is there of the model, in whole chunks.
    """

    load: int
    model: str
    target: Stop
    source: str
    size_bytes: int
    seconds: float
    whole: bool


@dataclass(slots=True, eq=False)
class LoadRun:
    """A load under way. flows: hop -> the fabric's number of what moves there now.

    ready_at_end_s: by target, from the last byte to its first step (the engine's own preparations). wished_s:
    when the controller asked for it. feeders: the loads that still bring parameters to a source of this one,
    with the target that it is there; followers: those that have a target of this one as a source.
    """

    action: Load
    chain: Chain
    ready_at_end_s: dict[int, float]
    wished_s: float
    feeders: list[tuple["LoadRun", int]]
    followers: list["LoadRun"] = field(default_factory=list)
    begun: bool = False
    flows: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)  # the fabric's number -> target; -1: to begin
    layers: list[int] = field(default_factory=list)  # by target, how many are whole
    # Since when each of them could run a prompt, if every layer is told.
    layers_s: list[list[float]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        targets = range(len(self.action.targets))
        self.open = set(targets)
        self.layers = [0 for _ in targets]
        self.layers_s = [[] for _ in targets]
        for feeder, _ in self.feeders:
            feeder.followers.append(self)

    def ready_chunks(self) -> int:
        """Chunks, from the first on, that every source has."""
        return min(
            [self._ready_at(feeder, target) for feeder, target in self.feeders],
            default=len(self.chain.chunks),
        )

    def _ready_at(self, feeder: "LoadRun", target: int) -> int:
        """Chunks, from the first on, that a feeder's target has.

        One that gets them in another order passes on whole units, as far as they are the next here.
        """
        there = feeder.chain.whole_chunks(target)
        if feeder.action.layers_first == self.action.layers_first:
            return there
        theirs, own = feeder.chain, self.chain
        units = {theirs.units[chunk.unit].name for chunk in theirs.chunks[:there] if chunk.last}
        ready = 0
        for chunk in own.chunks:
            if own.units[chunk.unit].name not in units:
                break
            ready += 1
        return ready

    def begin(self) -> list[Send]:
        """The start-up is over: what may move now."""
        self.begun = True
        return self.chain.begin(self.ready_chunks(), not (self.action.every_layer or self.followers))

    def feed(self) -> list[Send]:
        """More lies at the sources: what may move now."""
        return self.chain.feed(self.ready_chunks()) if self.begun else []

    def arrived(self, step: Step, now_s: float) -> Iterator[tuple[int, bool]]:
        """(target, whether everything is there) for what ``step`` completes, layers counted."""
        for target, unit, layer in step.arrivals:
            if layer is not None:
                self.layers[target] += 1
                if self.action.every_layer:
                    self.layers_s[target].append(now_s)
            elif self.action.layers_first and self.chain.units[unit].name == "embedding":
                self.layers_s[target] = [now_s] * len(self.layers_s[target])
            whole = unit == len(self.chain.units) - 1
            if whole or layer is not None:
                yield target, whole

    def needs(self, other: "LoadRun") -> bool:
        """Whether a source of this one is a target to which ``other`` is under way."""
        return any(feeder is other and target in other.open for feeder, target in self.feeders)

    def report(self, target: int, whole: bool) -> Loaded:
        """What the controller is told of a target."""
        if whole:
            self.open.discard(target)
        return Loaded(self.action.load, target, self.layers[target], whole)

    def stopped(self, cause: str) -> list[LoadStopped]:
        """What the controller is told of every target that will get no more."""
        targets = sorted(self.open)
        self.open.clear()
        return [LoadStopped(self.action.load, target, self.layers[target], cause) for target in targets]

    def record(self, target: int, now_s: float, whole: bool) -> LoadRecord:
        """What is kept of a target that gets no more."""
        action, there = self.action, self.chain.chunks[: self.chain.whole_chunks(target)]
        return LoadRecord(
            action.load,
            action.model,
            action.targets[target],
            action.sources[0][0],
            sum([chunk.size_bytes for chunk in there]),
            now_s - self.wished_s,
            whole,
        )
