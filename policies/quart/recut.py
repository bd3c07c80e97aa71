"""When a staged language model is cut at new layers, at which, and with how many replicas per stage.

Both rules are ours. ``SlowestStage`` evens out the measured times of stages. ``BurstsByCv`` uses few stages,
on few GPUs, while arrivals are steady, and many, each of which loads sooner, while they come in bursts.
FlexPipe already changes the granularity of pipelines with the CV of arrivals.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import ceil, inf
from typing import Any, Final, Protocol

from policies.quart.free_room import FreeRoom, spread
from serving.protocols.stages import CutAnew, PipelineView, StageDecision, StageScaler
from serving.vocabulary.units import NS_PER_S

BUSY: Final = 0.7  # share of time new replicas are busy, at the present rate
EPSILON: Final = 1e-9  # tolerance before rounding up
GAIN: Final = 0.95  # the longest stage must take at most this share of its present time


class CutRule(Protocol):
    """Decides at which layers stages begin. ``memory_s``: for how long a view can affect its decisions."""

    @property
    def memory_s(self) -> float: ...

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """The layers at which stages should begin, and why; None: keep the present cut."""


class SlowestStage:
    """Keep the number of stages, but even out their times as far as whole layers allow.

    It cuts once one stage has taken ``limit`` times the mean for ``hold_s`` in a cut.
    """

    def __init__(self, limit: float = 1.1, hold_s: float = 10.0) -> None:
        self._limit, self.memory_s = limit, hold_s
        self._since_ns: int | None = None
        self._cut: tuple[int, ...] = ()  # the cut whose times are observed

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """Decide by the work of replicas for requests of the window."""
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
    """``few`` stages of equal layers for steady arrivals, ``many`` for bursts.

    ``many`` from an arrival CV of ``bursty`` on, until the CV has been below ``calm`` for ``hold_s``.
    """

    def __init__(
        self, few: int, many: int, bursty: float = 2.0, calm: float = 1.5, hold_s: float = 30.0
    ) -> None:
        self._few, self._many, self._bursty, self._calm, self.memory_s = few, many, bursty, calm, hold_s
        self._seen = deque[tuple[int, float]]()

    def begins(self, view: PipelineView) -> tuple[tuple[int, ...], str] | None:
        """Decide by the CV of the window."""
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
    """Wraps a scaler with a cut rule. Each cut starts a new scaler; no scaler acts while a cut is coming."""

    def __init__(self, make: Callable[[], StageScaler], rule: CutRule) -> None:
        self._make, self._rule, self._inner = make, rule, make()
        self._begins: tuple[int, ...] = ()

    @property
    def memory_s(self) -> float:
        """Sum of scaler and rule; AttributeError if the scaler has none."""
        inner: Any = self._inner
        return float(inner.memory_s + self._rule.memory_s)

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Ask the rule first, then the scaler."""
        if view.cut is None:
            return self._inner.scale(view)
        begins = tuple([stage.layers[0] for stage in view.stages])
        if self._begins not in ((), begins):
            self._inner = self._make()
        self._begins = begins
        if view.cut.coming:
            return ()
        begins_now = self._rule.begins(view)
        wish = None if begins_now is None or begins_now[0] == begins else _wish(view, *begins_now)
        return self._inner.scale(view) if wish is None else (wish,)


def _wish(view: PipelineView, begins: tuple[int, ...], reason: str) -> CutAnew | None:
    """A new cut with replicas for the present rate; None if there is no room for one per new stage.

    In total at least as many replicas as now, divided among stages by time, as far as GPUs are free.
    """
    assert view.cut is not None
    spans = list(pairwise((*begins, view.cut.layers)))
    if max([last - first for first, last in spans]) > view.cut.most_layers:
        return None
    times, own = stage_seconds(layer_seconds(view), begins), view.stages[0]
    shares = [view.supply * time / sum(times) for time in times]
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
    """Time of a request at each layer; the layers within a stage count as equal."""
    return [
        stage.service_s / (stage.layers[1] - stage.layers[0])
        for stage in view.stages
        for _ in range(*stage.layers)
    ]


def stage_seconds(layers: Sequence[float], begins: Sequence[int]) -> list[float]:
    """Time of a request at each stage, if stages begin at these layers."""
    sums = [0.0, *accumulate(layers)]
    return [sums[last] - sums[first] for first, last in pairwise((*begins, len(layers)))]


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """The first layers of ``stages`` stages with equal numbers of layers, or one more."""
    return tuple([layers * stage // stages for stage in range(stages)])


def even_times(layers: Sequence[float], stages: int) -> tuple[int, ...]:
    """The first layers of ``stages`` stages whose longest is as short as possible; the earliest such cut."""
    sums, count = [0.0, *accumulate(layers)], len(layers)
    # least[n]: for the first n layers in the stages so far, the longest stage's time and the first layers
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
