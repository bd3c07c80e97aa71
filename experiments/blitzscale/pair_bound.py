"""What ZigZag can gain over best effort in one pair with everything queued: closed form, schedules, runs.

Times are in units of the whole load, a is the queued work of one instance in that unit. With many layers and
batches, x of them loaded at time x:

* ZigZag. The old instance takes a batch over at time t with the share t of its layers done at most, so it
  works off the queue at 1/(1-t): -ln(1-t) by time t, and a is through at 1-exp(-a). The new one has run
  -ln(1-t)-t by then, for which it has the time up to 1-exp(-a) = a/2. Beyond, both are busy throughout: a/2.
* Best effort. The new one is through all batches at once with next to no layers, so the old one has all of
  the work: a. Of what is left when everything is loaded either may run half: 1+(a-1)/2. Batches that keep to
  their quotas even then are not shared: a.

No division in which a batch changes hands once ends sooner than ZigZag here, and best effort with fewer
layers ends sooner than here: the least ratio, where both bounds of ZigZag meet, is a bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Final

from experiments.blitzscale.one_pair import play
from policies.live.zigzag_replay import Schedule, best_effort, ilp_free
from serving.protocols.live import LiveView

LAYERS: Final = 32
LOAD: Final = 12  # of a layer, in layer times
_BATCHES: Final = (6, 12, 15, 18, 19, 24, 36)


def zigzag_s(work: float) -> float:
    """When the last batch ends under ZigZag."""
    return max(1 - exp(-work), work / 2)


def shared_s(work: float) -> float:
    """Under best effort, when everything is loaded both run what is left."""
    return work if work <= 1 else (1 + work) / 2


def kept_s(work: float) -> float:
    """Under best effort when quotas stay to the end."""
    return work


def _meeting() -> float:
    """Where 1-exp(-a) = a/2, by bisection."""
    low, high = 1.0, 2.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - exp(-middle) > middle / 2 else (low, middle)
    return low


BEST_WORK: Final = _meeting()  # 1.594
BOUND: Final = zigzag_s(BEST_WORK) / shared_s(BEST_WORK)  # 0.614


@dataclass(frozen=True, slots=True)
class Curve:
    """When the last batch ends, by queued work, both over the time of the load."""

    work: tuple[float, ...]
    zigzag: tuple[float, ...]
    effort: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """ZigZag over best effort."""
        return tuple([one / other for one, other in zip(self.zigzag, self.effort, strict=True)])

    def best(self) -> tuple[float, float]:
        """(least ratio, at which work)."""
        return min(zip(self.ratios, self.work, strict=True))


def closed(effort: Callable[[float], float], most: float = 3.0, points: int = 121) -> Curve:
    """The closed form."""
    work = tuple([most * (step + 1) / points for step in range(points)])
    return Curve(work, tuple(map(zigzag_s, work)), tuple(map(effort, work)))


def scheduled(layers: int = LAYERS, load: int = LOAD) -> Curve:
    """The layer-level schedules, quotas kept to the end."""

    def last(schedule: Callable[[LiveView], Schedule], batches: int) -> float:
        return max(schedule(LiveView(layers, load, (1,) * batches)).finish_ns) / (layers * load)

    batches = [count * load // LOAD for count in _BATCHES]
    return Curve(
        tuple([count / load for count in batches]),
        tuple([last(ilp_free, count) for count in batches]),
        tuple([last(best_effort, count) for count in batches]),
    )


@cache
def simulated() -> Curve:
    """Whole runs; quotas end when everything is loaded."""

    def last(scheduler: str, batches: int) -> float:
        return max(play(LAYERS, LOAD - 0.01, batches, scheduler).finish) / (LAYERS * LOAD)

    return Curve(
        tuple([count / LOAD for count in _BATCHES]),
        tuple([last("ilp_free", count) for count in _BATCHES]),
        tuple([last("best_effort", count) for count in _BATCHES]),
    )
