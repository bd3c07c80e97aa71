"""Errors of simulated rows beside AIConfigurator's, by what they share; a refused row is 100 % wrong."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from benchmarks.silicon.runs import Result

METRICS: Final = ("ttft", "tpot")
REFUSED: Final = 1.0


@dataclass(frozen=True, slots=True)
class Errors:
    """Median and mean of the sizes of relative errors, and their median with sign; shares of the measured."""

    rows: int
    median: float
    mean: float
    bias: float


def errors(values: Iterable[float]) -> Errors | None:
    """None without values."""
    signed = list(values)
    if not signed:
        return None
    sizes = [abs(value) for value in signed]
    return Errors(len(signed), median(sizes), fmean(sizes), median(signed))


def off(result: Result, metric: str) -> float:
    """How far the simulated mean is from the measured one; a refused row counts as wholly wrong."""
    simulated, measured = getattr(result, f"{metric}_ms"), getattr(result.row, f"{metric}_ms")
    return -REFUSED if result.refused or simulated is None else float(simulated / measured - 1.0)


def aic_off(result: Result, metric: str) -> float | None:
    """How far AIConfigurator's prediction is off; None where it has none."""
    predicted = getattr(result.row, f"aic_{metric}_ms")
    return None if predicted is None else float(predicted / getattr(result.row, f"{metric}_ms") - 1.0)


def of_ours(results: Sequence[Result], metric: str, refused_too: bool = False) -> Errors | None:
    """Errors of the rows that ran, or of all."""
    return errors(off(result, metric) for result in results if refused_too or not result.refused)


def of_theirs(results: Sequence[Result], metric: str, refused_too: bool = False) -> Errors | None:
    """AIConfigurator's errors on the rows that it answers, or on all."""
    found = [aic_off(result, metric) for result in results]
    return errors(-REFUSED if value is None else value for value in found if refused_too or value is not None)


def by(results: Iterable[Result], name: Callable[[Result], str]) -> dict[str, list[Result]]:
    """Results with the same name, in the order of names."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(name(result), []).append(result)
    return dict(sorted(groups.items()))


def clients(result: Result) -> str:
    """The number of clients, in steps of four."""
    for most in (4, 16, 64, 256):
        if result.row.clients <= most:
            return f"{most:>4} clients or fewer"
    return "more clients"
