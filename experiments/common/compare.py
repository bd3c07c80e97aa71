"""Rows that set one system beside another, seed by seed, from the outcomes of their runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from experiments.common.figure import MISSED, Key, Kind, Row
from experiments.common.moved import moved_alone, moved_order, moved_ratio
from experiments.common.outcomes import (
    GPU_TIME,
    INSTANCES,
    LOAD_TIME,
    LOADS,
    MISS_RATE,
    Metric,
    Outcomes,
)
from experiments.common.paired import mean_of, ratio_of
from experiments.common.saved import SEED, pointing
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, in_order, judged_over
from servetwin.report.number_text import number

# Said of both systems wherever they differ: usually one of these explains a ratio that is out.
_TOLD: Final = (LOADS, LOAD_TIME, INSTANCES, GPU_TIME)


def ratio_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, ours: Case, other: Case, stand_in: str = ""
) -> Row:
    """``metric`` of one system over that of another under the same arrivals, against what the paper says."""
    stand_in = joined(ours.set_up.stand_in, stand_in)
    if why_not := outcomes.why_not(ours, other):
        return claim.not_comparable(name, stand_in, why_not)
    values = [metric.of(outcomes.of(one)) for one in (ours, other)]
    if values[0] is None or values[1] is None:
        return claim.not_comparable(name, stand_in, f"summary.json of a run has no {metric.where}")
    ratio = ratio_of(values[0], values[1])
    if ratio is None:
        sizes = " against ".join(number(mean_of(part).value) for part in values if part)
        why = f"{metric.label}: {sizes}, of which there is no ratio"
        return claim.not_comparable(name, stand_in, why)
    row = judged_over(name, claim, ratio, stand_in, measured(outcomes, metric, ours, other))
    seeds = [one / two for one, two in zip(*values, strict=True)]
    return kept(row, ours, seeds, *moved_ratio(outcomes, claim, metric, ours, other))


def kept(row: Row, ours: Case, seeds: Sequence[float], told: str = "", keys: Sequence[Key] = ()) -> Row:
    """Names the sweeps the number is kept in; a row that is missed also says how far it moves in them."""
    saved = ((SEED, ours.set_up.name), *keys)
    if row.verdict not in MISSED:
        return replace(row, saved=saved)
    least, most = number(min(seeds)), number(max(seeds))
    spread = f"by seed {least} to {most}" if len(seeds) > 1 else ""
    return replace(row, why=joined(row.why, spread, told, pointing(saved)), saved=saved)


def pointed(row: Row, *keys: Key) -> Row:
    """Names sweeps of a figure's own beside those the row has."""
    row = replace(row, saved=(*row.saved, *keys))
    return replace(row, why=joined(row.why, pointing(keys))) if row.verdict in MISSED else row


def value_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, ours: Case, unit: float = 1.0
) -> Row:
    """``metric`` of one system in units of ``unit``, against what the paper says of it alone."""
    stand_in = ours.set_up.stand_in
    if why_not := outcomes.why_not(ours):
        return claim.not_comparable(name, stand_in, why_not)
    values = metric.of(outcomes.of(ours))
    if values is None:
        return claim.not_comparable(name, stand_in, f"summary.json of a run has no {metric.where}")
    seeds = [value / unit for value in values]
    row = judged_over(name, claim, mean_of(seeds), stand_in, measured(outcomes, metric, ours))
    return kept(row, ours, seeds, *moved_alone(outcomes, claim, metric, ours, unit))


def order_row(
    outcomes: Outcomes,
    name: str,
    metric: Metric,
    cases: Sequence[Case],
    kind: Kind = "paper_direction",
    labels: Sequence[str] = (),
) -> Row:
    """Whether the systems come in the order of ``cases``, the smallest ``metric`` first.

    labels: of the cases, where those they have do not tell them apart.
    """
    wanted, stand_in = tuple(labels) or tuple(one.label for one in cases), cases[0].set_up.stand_in
    assert len(set(wanted)) == len(wanted) == len(cases), "systems of an order have labels of their own"
    unmeasured = Claim(" < ".join(wanted), 0.0, 1.0, kind=kind)
    if why_not := outcomes.why_not(*cases):
        return unmeasured.not_comparable(name, stand_in, why_not)
    found = {}
    for label, one in zip(wanted, cases, strict=True):
        values = metric.of(outcomes.of(one))
        if values is None:
            lacks = f"summary.json of {label} has no {metric.where}"
            return unmeasured.not_comparable(name, stand_in, lacks)
        found[label] = values
    row = in_order(name, wanted, found, metric.unit, stand_in, kind)
    loads = [
        f"{label} {number(mean_of(values).value)} s"
        for label, one in zip(wanted, cases, strict=True)
        if (values := LOAD_TIME.of(outcomes.of(one)))
    ]
    told, keys = moved_order(outcomes, metric, cases)
    row = replace(row, why=joined(row.why, f"mean load time {', '.join(loads)}" if loads else ""))
    seeds = dict.fromkeys((SEED, one.set_up.name) for one in cases)
    return pointed(replace(row, why=joined(row.why, told)) if row.verdict in MISSED else row, *seeds, *keys)


def measured(outcomes: Outcomes, metric: Metric, *cases: Case) -> str:
    """The metric and what usually explains it, of each system in turn."""
    parts = []
    for one in (metric, *(told for told in _TOLD if told is not metric)):
        values = [one.of(outcomes.of(case)) for case in cases]
        known = [mean_of(part).value for part in values if part is not None]
        if len(known) == len(cases):
            parts.append(
                f"{one.label} {' against '.join(f'{number(value)} {one.unit}'.rstrip() for value in known)}"
            )
    for case in cases:
        if metric is not MISS_RATE and (missed := MISS_RATE.of(outcomes.of(case))):
            parts.append(f"{case.label} missed {mean_of(missed).value:.0%} of its look-ups in host memory")
    return "; ".join(parts)


def joined(*parts: str) -> str:
    """What there is of the parts, with ``; `` between."""
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
