"""Rows that set one system beside another, seed by seed, from the outcomes of their runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from experiments.common.figure import MISSED, FigureRow, Key, Kind
from experiments.common.outcomes import (
    GPU_TIME,
    INSTANCES,
    LOAD_TIME,
    LOADS,
    MISS_RATE,
    Metric,
    Outcomes,
    RunOutcome,
)
from experiments.common.paired import Estimated, geometric_mean_of, mean_of, ratio_of
from experiments.common.saved import SEED, pointing
from experiments.common.sensitivity import moved, moved_order
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, in_order, judged_over
from servetwin.report.number_text import number

# Said of both systems wherever they differ: usually one of these explains a ratio that is out.
_EXPLAINING: Final = (LOADS, LOAD_TIME, INSTANCES, GPU_TIME)

Seeds = list[float] | str
"""One number per seed, or why there is none."""
Read = Callable[[Sequence[Sequence[RunOutcome]]], Seeds]
"""Finds the number in the runs of each case."""


def judged_row(
    outcomes: Outcomes,
    name: str,
    claim: Claim,
    cases: Sequence[Case],
    read: Read,
    *,
    why: str | Callable[[list[float]], str] = "",
    estimate: Callable[[Sequence[float]], Estimated] = mean_of,
    write: Callable[[float], str] = number,
    unit: str = "",
    stand_in: str | None = None,
    key: Key | None = None,
    moves: bool = True,
) -> FigureRow:
    """Return the row that compares the number which ``read`` finds in the cases' runs with the claim.

    why: returns what was measured, from the number of every seed. estimate: returns the mean over the seeds.
    stand_in: what stands in for something of the paper; by default that of the set-up. key: the key of the
    figure's own sweep in which the number is saved. Without a key it is saved by seed, and a missed row
    states how far it moves along the sweeps of its set-up, unless ``moves`` is false.
    """
    stand_in = cases[0].set_up.stand_in if stand_in is None else stand_in
    seeds = outcomes.why_not(*cases) or read([outcomes.of(case) for case in cases])
    if isinstance(seeds, str):
        return claim.not_comparable(name, stand_in, seeds)
    reason = why if isinstance(why, str) else why(seeds)
    row = judged_over(name, claim, estimate(seeds), stand_in=stand_in, why=reason, write=write, unit=unit)
    if key is not None:
        return pointed(row, key)

    def size(runs: Sequence[Sequence[RunOutcome]]) -> float | None:
        values = read(runs)
        return None if isinstance(values, str) else estimate(values).value

    return saved_by_seed(row, cases[0], seeds, *(moved(outcomes, claim, size, *cases) if moves else ()))


def values_of(metric: Metric, unit: float = 1.0, lacks: str = "") -> Read:
    """Reads the metric of one system in units of ``unit``. lacks: what is said where a run has none."""

    def read(runs: Sequence[Sequence[RunOutcome]]) -> Seeds:
        values = metric.of(runs[0])
        return [value / unit for value in values] if values else lacks or _lacks(metric)

    return read


def ratios_of(metric: Metric, lacks: str = "") -> Read:
    """Reads the metric of one system over that of another. lacks: what is said where there is no ratio."""

    def read(runs: Sequence[Sequence[RunOutcome]]) -> Seeds:
        ours, theirs = (metric.of(part) for part in runs)
        if not ours or not theirs:
            return lacks or _lacks(metric)
        if ratio_of(ours, theirs) is None:
            sizes = f"{number(mean_of(ours).value)} against {number(mean_of(theirs).value)}"
            return lacks or f"{metric.label}: {sizes}, of which there is no ratio"
        return [our / other for our, other in zip(ours, theirs, strict=True)]

    return read


def _lacks(metric: Metric) -> str:
    return f"summary.json of a run has no {metric.where}"


def ratio_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, *, ours: Case, other: Case
) -> FigureRow:
    """Compare the ratio of two systems' ``metric`` under the same arrivals with the paper's claim."""
    return judged_row(
        outcomes,
        name,
        claim,
        (ours, other),
        ratios_of(metric),
        why=measured(outcomes, metric, ours, other),
        estimate=geometric_mean_of,
    )


def value_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, *, ours: Case, unit: float = 1.0
) -> FigureRow:
    """Compare ``metric`` of one system, in units of ``unit``, with the paper's claim about this system."""
    why = measured(outcomes, metric, ours)
    return judged_row(outcomes, name, claim, (ours,), values_of(metric, unit), why=why)


def saved_by_seed(
    row: FigureRow, ours: Case, seeds: Sequence[float], movement: str = "", keys: Sequence[Key] = ()
) -> FigureRow:
    """Return the row with the sweeps that have its number, and ``movement`` along them if it is missed."""
    saved = ((SEED, ours.set_up.name), *keys)
    if row.verdict not in MISSED:
        return replace(row, saved=saved)
    least, most = number(min(seeds)), number(max(seeds))
    spread = f"by seed {least} to {most}" if len(seeds) > 1 else ""
    return replace(row, why=joined(row.why, spread, movement, pointing(saved)), saved=saved)


def pointed(row: FigureRow, *keys: Key) -> FigureRow:
    """Return the row with the keys of further sweeps, which the figure itself saves."""
    row = replace(row, saved=(*row.saved, *keys))
    return replace(row, why=joined(row.why, pointing(keys))) if row.verdict in MISSED else row


def order_row(
    outcomes: Outcomes, name: str, metric: Metric, cases: Sequence[Case], kind: Kind = "paper_direction"
) -> FigureRow:
    """Whether the systems come in the order of ``cases``, the smallest ``metric`` first."""
    wanted, stand_in = tuple(case.label for case in cases), cases[0].set_up.stand_in
    assert len(set(wanted)) == len(wanted) == len(cases), "systems of an order have labels of their own"
    unmeasured = Claim(" < ".join(wanted), 0.0, 1.0, kind=kind)
    if why_not := outcomes.why_not(*cases):
        return unmeasured.not_comparable(name, stand_in, why_not)
    values_by_label = {}
    for label, case in zip(wanted, cases, strict=True):
        values = metric.of(outcomes.of(case))
        if values is None:
            lacks = f"summary.json of {label} has no {metric.where}"
            return unmeasured.not_comparable(name, stand_in, lacks)
        values_by_label[label] = values
    row = in_order(name, wanted, values_by_label, unit=metric.unit, stand_in=stand_in, kind=kind)
    loads = [
        f"{label} {number(mean_of(values).value)} s"
        for label, case in zip(wanted, cases, strict=True)
        if (values := LOAD_TIME.of(outcomes.of(case)))
    ]
    movement, keys = moved_order(outcomes, metric, cases)
    row = replace(row, why=joined(row.why, f"mean load time {', '.join(loads)}" if loads else ""))
    seeds = dict.fromkeys((SEED, case.set_up.name) for case in cases)
    return pointed(
        replace(row, why=joined(row.why, movement)) if row.verdict in MISSED else row, *seeds, *keys
    )


def measured(outcomes: Outcomes, metric: Metric, *cases: Case) -> str:
    """The metric and what usually explains it, of each system in turn."""
    parts = []
    for explaining in (metric, *(other for other in _EXPLAINING if other is not metric)):
        values = [explaining.of(outcomes.of(case)) for case in cases]
        known = [mean_of(part).value for part in values if part is not None]
        if len(known) == len(cases):
            sizes = " against ".join(f"{number(value)} {explaining.unit}".rstrip() for value in known)
            parts.append(f"{explaining.label} {sizes}")
    for case in cases:
        if metric is not MISS_RATE and (missed := MISS_RATE.of(outcomes.of(case))):
            parts.append(f"{case.label} missed {mean_of(missed).value:.0%} of its look-ups in host memory")
    return "; ".join(parts)


def joined(*parts: str) -> str:
    """Return the parts that are not empty, with ``; `` between them."""
    return "; ".join(part for part in parts if part)


def over_time(outcomes: Outcomes, case: Case, bin_s: float = 5.0) -> tuple[list[float], list[float]]:
    """(bin centres in s, mean TTFT in ms) of the first seed, by arrival; NaN where no request arrived."""
    import numpy as np

    first = outcomes.of(case)[0]
    slot = (first.arrival_s // bin_s).astype(np.int64)
    counts = np.bincount(slot)
    sums = np.bincount(slot, weights=first.ttft_ms)
    means = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return ((np.arange(len(counts)) + 0.5) * bin_s).tolist(), means.tolist()
