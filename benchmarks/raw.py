"""The unit of every benchmark: CPU time of one SimPy timeout in one generator process, in the same run."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

from simpy import Environment, Event

TIMEOUTS = 200_000

Clock = Callable[[], float]


@dataclass(frozen=True)
class Repeats:
    """Repeated measurements in one process: ``cpu_s`` of the work, ``raw_s`` of one timeout, between them.

    Noise only adds, to either. So the best is the least of the work over the least of the unit, each on its
    own: of a quotient per run the least would be the one whose unit was slowed down.
    """

    cpu_s: tuple[float, ...]
    raw_s: tuple[float, ...]

    @property
    def best_cpu_s(self) -> float:
        return min(self.cpu_s)

    @property
    def best_raw_s(self) -> float:
        return min(self.raw_s)

    @property
    def best(self) -> float:
        """Raw that the work costs."""
        return self.best_cpu_s / self.best_raw_s

    @property
    def median(self) -> float:
        """The same of medians."""
        return median(self.cpu_s) / median(self.raw_s)

    def text(self, unit: str, digits: int = 1) -> str:
        """``best (median) raw per unit``, and the two times that make it."""
        return (
            f"{self.best:9,.{digits}f} raw per {unit} (median {self.median:,.{digits}f})   "
            f"{self.best_cpu_s * 1e6:9,.2f} us CPU per {unit}   raw {self.best_raw_s * 1e6:.3f} us"
        )


@dataclass(frozen=True)
class Solves:
    """CPU seconds of single decisions, each of them counted, and of one timeout between rounds of them."""

    cpu_s: tuple[float, ...]
    raw_s: tuple[float, ...]

    def text(self) -> str:
        """Least, p50 and p99 in ms and, over the least timeout, in raw."""
        raw_s = min(self.raw_s)
        shown = (("least", min(self.cpu_s)), *((f"p{at}", percentile(self.cpu_s, at)) for at in (50, 99)))
        times = "   ".join(f"{name} {cpu_s * 1e3:.4g} ms ({cpu_s / raw_s:,.0f} raw)" for name, cpu_s in shown)
        return f"{times}   of {len(self.cpu_s)}, raw {raw_s * 1e6:.3f} us"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value at rank ceil(percent % of n): one of the values, never between two."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def solves(
    once: Callable[[], float], rounds: int, each: int, raw: Callable[[], float] | None = None
) -> Solves:
    """``rounds`` of ``each`` decisions; ``once`` gives the CPU seconds of one.

    The unit is taken between rounds: it takes longer than most decisions.
    """
    seconds = list[float]()

    def one_round() -> float:
        seconds.extend(once() for _ in range(each))
        return seconds[-1]

    raw_s = measured(one_round, rounds, raw).raw_s
    return Solves(tuple(seconds), raw_s)


def measured(once: Callable[[], float], repeats: int, raw: Callable[[], float] | None = None) -> Repeats:
    """``once`` gives the CPU seconds of one unit of work; the unit of time is taken around every run."""
    raw = raw or raw_timeout_s
    cpu_s, raw_s = list[float](), [raw()]
    for _ in range(repeats):
        cpu_s.append(once())
        raw_s.append(raw())
    return Repeats(tuple(cpu_s), tuple(raw_s))


def raw_timeout_s(clock: Clock = process_time) -> float:
    """CPU seconds of one timeout; the best of three, because noise only adds."""
    return min(_measure(clock) for _ in range(3))


def _measure(clock: Clock) -> float:
    env = Environment()

    def process() -> Generator[Event, None, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(process())
    started = clock()
    env.run()
    return (clock() - started) / TIMEOUTS
