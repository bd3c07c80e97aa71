"""Computes how far repeats differ, and whether the machine was quiet enough for the measurements."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Above this ratio a worker waited for its core for more than a sixth of the time.
MOST_WALL_OVER_CPU: Final = 1.2
# Limit for (p90 - p10) / median over a step's repeats, taken at the median step. Readers of a profile leave
# out one bad point in ten. If the usual step differs by more, the mean of a few repeats says little.
MOST_SPREAD: Final = 0.2


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics over the repeats of one measurement, in its unit."""

    repeats: int
    median: float
    p10: float
    p90: float
    mean: float

    @property
    def share(self) -> float:
        """The distance from p10 to p90 as a share of the median."""
        return (self.p90 - self.p10) / self.median if self.median else 0.0

    def as_dict(self, unit: str) -> dict[str, float]:
        """Return a dict with ``median_us`` and so on, for ``unit`` us."""
        named = {"median": self.median, "p10": self.p10, "p90": self.p90, "mean": self.mean}
        return {"repeats": self.repeats} | {f"{name}_{unit}": value for name, value in named.items()}


def spread_of(values: Sequence[float]) -> Spread:
    """Return the statistics of at least one value."""
    ordered = sorted(values)
    return Spread(
        len(ordered),
        statistics.median(ordered),
        _quantile(ordered, 0.1),
        _quantile(ordered, 0.9),
        statistics.fmean(ordered),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def wall_over_cpu(wall_ns: int, cpu_ns: int) -> float | None:
    """Return wall time over CPU time; None if the system does not report the CPU time of processes."""
    return wall_ns / cpu_ns if cpu_ns else None


def noise_of(ratio: float | None, spreads: Iterable[Spread]) -> list[str]:
    """Return reasons not to trust the measurements, a clause each; empty if the machine was quiet."""
    labels = []
    if ratio is None:
        labels.append(
            "the system does not report the workers' CPU time, so it is unknown whether the machine was quiet"
        )
    elif ratio > MOST_WALL_OVER_CPU:
        labels.append(
            f"workers waited for a core: {ratio:.2f} s passed per second of CPU, at most "
            f"{MOST_WALL_OVER_CPU} on a quiet machine"
        )
    return labels + differing_repeats(spreads)


def differing_repeats(spreads: Iterable[Spread]) -> list[str]:
    """Return a clause if repeats differ too far, or it is not known; else nothing."""
    shares = [spread.share for spread in spreads if spread.repeats > 1]
    if not shares:
        return ["nothing was measured twice, so it is unknown how far repeats differ"]
    if (typical := statistics.median(shares)) <= MOST_SPREAD:
        return []
    return [
        f"repeats differ: p10 to p90 of the usual step is {typical:.0%} of its median, at most "
        f"{MOST_SPREAD:.0%} on a quiet machine"
    ]


def told_noise(noise: Sequence[str]) -> Mapping[str, Any]:
    """Return what was found, with the limits, for a record."""
    return {"noisy": list(noise), "most_wall_over_cpu": MOST_WALL_OVER_CPU, "most_spread": MOST_SPREAD}
