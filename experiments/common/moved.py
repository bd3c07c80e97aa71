"""How far a number moves along the saved sweeps of its set-up: what explains a row that is missed."""

from collections.abc import Callable, Mapping, Sequence

from experiments.common.figure import Key
from experiments.common.outcomes import Metric, Outcome, Outcomes
from experiments.common.paired import mean_of, ratio_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim
from servetwin.report.number_text import number

Read = Callable[[Sequence[Sequence[Outcome]]], float | None]
Told = tuple[str, list[Key]]
"""A sentence and the sweeps it is about."""


def moved(outcomes: Outcomes, claim: Claim, read: Read, *cases: Case) -> Told:
    """What ``read`` makes of the runs of these systems at every point that has them all."""
    found: dict[Key, dict[str, float]] = {}
    for key, value, runs in _points(outcomes, cases):
        size = read(runs)
        if size is not None:
            found.setdefault(key, {})[value] = size
    return _spread(claim, found), list(found)


def moved_ratio(outcomes: Outcomes, claim: Claim, metric: Metric, ours: Case, other: Case) -> Told:
    """A metric of one system over that of another."""

    def read(runs: Sequence[Sequence[Outcome]]) -> float | None:
        one, two = (metric.of(part) for part in runs)
        ratio = ratio_of(one, two) if one and two else None
        return None if ratio is None else ratio.value

    return moved(outcomes, claim, read, ours, other)


def moved_alone(outcomes: Outcomes, claim: Claim, metric: Metric, ours: Case, unit: float = 1.0) -> Told:
    """A metric of one system, in units of ``unit``."""

    def read(runs: Sequence[Sequence[Outcome]]) -> float | None:
        values = metric.of(runs[0])
        return mean_of(values).value / unit if values else None

    return moved(outcomes, claim, read, ours)


def moved_order(outcomes: Outcomes, metric: Metric, cases: Sequence[Case]) -> Told:
    """At how many points the means of the systems come in this order."""
    found: dict[Key, list[bool]] = {}
    for key, _, runs in _points(outcomes, cases):
        values = [metric.of(part) for part in runs]
        means = [mean_of(part).value for part in values if part]
        if len(means) == len(cases):
            found.setdefault(key, []).append(means == sorted(means))
    told = [f"by {kind} the order holds at {sum(held)} of {len(held)}" for (kind, _), held in found.items()]
    return "; ".join(told), list(found)


def _points(outcomes: Outcomes, cases: Sequence[Case]) -> list[tuple[Key, str, list[tuple[Outcome, ...]]]]:
    """(sweep, value, runs of each case's label there) where all have run: seed 0, or every seed it has."""
    subjects, labels = {one.set_up.name for one in cases}, [one.label for one in cases]
    points = []
    for sweep in outcomes.sweeps:
        if {sweep.subject} != subjects:
            continue
        most = None if sweep.seeded else 1
        for value, there in sweep.points:
            by_label = {one.label: outcomes.of(one)[:most] for one in there}
            if all(by_label.get(label) for label in labels):
                points.append(((sweep.kind, sweep.subject), value, [by_label[label] for label in labels]))
    return points


def _spread(claim: Claim, found: Mapping[Key, Mapping[str, float]]) -> str:
    told = []
    for (kind, _), sizes in found.items():
        least, most = (pick(sizes, key=lambda value: sizes[value]) for pick in (min, max))
        near = sum(claim.verdict(size) == "in band" for size in sizes.values())
        told.append(
            f"by {kind} {number(sizes[least])} ({least}) to {number(sizes[most])} ({most}), "
            f"{near} of {len(sizes)} in band"
        )
    return "; ".join(told)
