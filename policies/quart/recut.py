"""When a language model in stages is cut anew, and into which layers; how many replicas each stage has.

Both rules are ours. ``SlowestStage`` evens out the measured times of stages. ``BurstsByCv`` has few stages,
on few GPUs, while arrivals are steady, and many, each of which loads sooner, while they come in bursts. That
pipelines change their granularity with the CV of arrivals is known from FlexPipe.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import ceil, inf
from typing import Any, Final, Protocol

from policies.quart.free_room import FreeRoom, spread
from serving.protocols.stages import CutAnew, PipelineView, StageDecision, StageScaler
from serving.vocabulary.units import NS_PER_S

BUSY: Final = 0.7  # of their time, that new replicas compute at the rate of now
EPSILON: Final = 1e-9  # of what is rounded up
GAIN: Final = 0.95  # the longest stage is to take so much of what it took, at most


class CutRule(Protocol):
    """Says where stages are to begin. ``memory_s``: for how long what it saw can change what it says."""

    @property
    def memory_s(self) -> float: ...

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """The layers at which they are to begin, and why; None: where they do."""


class SlowestStage:
    """The same number of stages, of times as equal as whole layers allow, once one has taken ``limit``
    times the mean for ``hold_s`` in a cut.
    """

    def __init__(self, limit: float = 1.1, hold_s: float = 10.0) -> None:
        self._limit, self.memory_s = limit, hold_s
        self._since_ns: int | None = None
        self._cut: tuple[int, ...] = ()  # whose times these are

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """By what replicas computed for requests of the window."""
        times = [stage.service_s for stage in view.stages]
        cut = tuple([stage.layers[0] for stage in view.stages])
        longest, mean = max(times), sum(times) / len(times)
        if longest < self._limit * mean or cut != self._cut:
            self._since_ns = None
        self._cut = cut
        if longest < self._limit * mean:
            return None
        if self._since_ns is None:
            self._since_ns = view.now_ns
        if view.now_ns - self._since_ns < self.memory_s * NS_PER_S:
            return None
        layers = layer_seconds(view)
        found = even_times(layers, len(times))
        then = max(stage_seconds(layers, found))
        if then > GAIN * longest:
            return None
        return found, f"the slowest stage takes {longest:.3g} s of {mean:.3g} s, and would take {then:.3g} s"


class BurstsByCv:
    """``few`` stages of equal layers, ``many`` from a CV of arrivals of ``bursty`` on, until it was below
    ``calm`` for ``hold_s``.
    """

    def __init__(
        self, few: int, many: int, bursty: float = 2.0, calm: float = 1.5, hold_s: float = 30.0
    ) -> None:
        self._few, self._many, self._bursty, self._calm, self.memory_s = few, many, bursty, calm, hold_s
        self._seen = deque[tuple[int, float]]()

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """By the CV of the window."""
        seen, cv, first_ns = self._seen, view.stages[0].arrival_cv, view.now_ns - self.memory_s * NS_PER_S
        seen.append((view.now_ns, cv))
        while len(seen) > 1 and seen[1][0] <= first_ns:
            seen.popleft()
        most, stages = max([one for _, one in seen]), len(view.stages)
        assert view.cut is not None
        if cv >= self._bursty and stages != self._many:
            return even_layers(view.cut.layers, self._many), f"arrivals have a CV of {cv:.3g}"
        if most < self._calm and seen[0][0] <= first_ns and stages != self._few:
            held = f"arrivals had a CV of {most:.3g} at most for {self.memory_s:g} s"
            return even_layers(view.cut.layers, self._few), held
        return None


class Recutting:
    """A scaler, and a rule that cuts the model anew: then a new scaler begins; meanwhile none acts."""

    def __init__(self, make: Callable[[], StageScaler], rule: CutRule) -> None:
        self._make, self._rule, self._inner = make, rule, make()
        self._begins: tuple[int, ...] = ()

    @property
    def memory_s(self) -> float:
        """Of both; AttributeError where the scaler does not say."""
        inner: Any = self._inner
        return float(inner.memory_s + self._rule.memory_s)

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """The rule first."""
        if view.cut is None:
            return self._inner.scale(view)
        begins = tuple([stage.layers[0] for stage in view.stages])
        if self._begins not in ((), begins):
            self._inner = self._make()
        self._begins = begins
        if view.cut.coming:
            return ()
        found = self._rule.begins(view)
        wish = None if found is None or found[0] == begins else _wish(view, *found)
        return self._inner.scale(view) if wish is None else (wish,)


def _wish(view: PipelineView, begins: tuple[int, ...], reason: str) -> CutAnew | None:
    """With the replicas that the rate of now calls for, and no fewer in all than there are, of each stage its
    share of them by time, as far as GPUs are free; None: they are not for one of each stage.
    """
    assert view.cut is not None
    spans = list(pairwise((*begins, view.cut.layers)))
    if max([last - first for first, last in spans]) > view.cut.most_layers:
        return None
    times, own = stage_seconds(layer_seconds(view), begins), view.stages[0]
    shares = [view.supply * one / sum(times) for one in times]
    wanted = [max(own.arrival_per_s * one / BUSY, share) for one, share in zip(times, shares)]
    counts = [min(own.maximum, max(own.minimum, ceil(one - EPSILON))) for one in wanted]
    there = {stage.layers: stage for stage in view.stages}
    new = [place for place, span in enumerate(spans) if span not in there]
    free = sum([host.free_gpus for host in view.hosts])
    while sum([counts[place] for place in new]) > free or sum(counts) > view.max_replicas:
        most = max(new, key=lambda place: counts[place], default=None)
        if most is None or counts[most] == 1:
            return None
        counts[most] -= 1
    room = sum([counts[place] for place in new])
    gpus = spread(FreeRoom(view), own, room)
    return CutAnew(begins, tuple(counts), reason, gpus) if len(gpus) == room else None


def layer_seconds(view: PipelineView) -> list[float]:
    """What a request takes at each layer, of stages whose layers are alike."""
    return [
        stage.service_s / (stage.layers[1] - stage.layers[0])
        for stage in view.stages
        for _ in range(*stage.layers)
    ]


def stage_seconds(layers: Sequence[float], begins: Sequence[int]) -> list[float]:
    """What it takes at stages that begin there."""
    sums = [0.0, *accumulate(layers)]
    return [sums[last] - sums[first] for first, last in pairwise((*begins, len(layers)))]


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Where so many stages begin that have as many layers each, or one more."""
    return tuple([layers * stage // stages for stage in range(stages)])


def even_times(layers: Sequence[float], stages: int) -> tuple[int, ...]:
    """Where so many stages begin of which the longest is as short as can be; of several cuts the earliest."""
    sums, count = [0.0, *accumulate(layers)], len(layers)
    # least[n]: of the first n layers in the stages so far the longest one's time, and where these begin
    least: list[tuple[float, tuple[int, ...]]] = [(sums[last], (0,)) for last in range(count + 1)]
    for stage in range(1, stages):
        least = [
            min(
                [
                    (max(least[at][0], sums[last] - sums[at]), (*least[at][1], at))
                    for at in range(stage, last)
                ],
                default=(inf, ()),
            )
            for last in range(count + 1)
        ]
    return least[count][1]
