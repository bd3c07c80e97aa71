"""How far a number moves along the saved sweeps of its set-up: added to the reason of a missed row."""

from collections.abc import Callable, Collection, Mapping, Sequence

from experiments.common.figure import HELD, Key
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import mean_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim
from servetwin.report.number_text import number

Read = Callable[[Sequence[Sequence[RunOutcome]]], float | None]
Moved = tuple[str, list[Key]]
"""A sentence and the sweeps it is about."""


def moved(outcomes: Outcomes, claim: Claim, read: Read, *cases: Case) -> Moved:
    """The smallest and largest number that ``read`` finds in the runs of these cases along each sweep."""
    sizes: dict[Key, dict[str, float]] = {}
    for key, value, runs in _points(outcomes, cases):
        size = read(runs)
        if size is not None:
            sizes.setdefault(key, {})[value] = size
    return _spread(claim, sizes), list(sizes)


def held_at(claim: Claim, sizes: Collection[float]) -> str:
    """Return at how many points of a sweep the claim holds: ``2 of 7 in band``."""
    held = sum(claim.verdict(size) in HELD for size in sizes)
    return f"{held} of {len(sizes)} {'in its direction' if claim.is_direction else 'in band'}"


def moved_order(outcomes: Outcomes, metric: Metric, cases: Sequence[Case]) -> Moved:
    """At how many points the means of the systems come in this order."""
    in_order: dict[Key, list[bool]] = {}
    for key, _, runs in _points(outcomes, cases):
        values = [metric.of(part) for part in runs]
        means = [mean_of(part).value for part in values if part]
        if len(means) == len(cases):
            in_order.setdefault(key, []).append(means == sorted(means))
    parts = [
        f"by {kind} the order holds at {sum(holds)} of {len(holds)}" for (kind, _), holds in in_order.items()
    ]
    return "; ".join(parts), list(in_order)


def _points(outcomes: Outcomes, cases: Sequence[Case]) -> list[tuple[Key, str, list[tuple[RunOutcome, ...]]]]:
    """(sweep, value, runs of each case's label there) where all have run: seed 0, or every seed it has."""
    subjects, labels = {case.set_up.name for case in cases}, [case.label for case in cases]
    points = []
    for sweep in outcomes.sweeps:
        if {sweep.subject} != subjects:
            continue
        seeds = None if sweep.seeded else 1
        for value, swept in sweep.points:
            by_label = {case.label: outcomes.of(case)[:seeds] for case in swept}
            if all(by_label.get(label) for label in labels):
                points.append(((sweep.kind, sweep.subject), value, [by_label[label] for label in labels]))
    return points


def _spread(claim: Claim, sizes_of_sweep: Mapping[Key, Mapping[str, float]]) -> str:
    parts = []
    for (kind, _), sizes in sizes_of_sweep.items():
        least, most = (pick(sizes, key=lambda value: sizes[value]) for pick in (min, max))
        parts.append(
            f"by {kind} {number(sizes[least])} ({least}) to {number(sizes[most])} ({most}), "
            f"{held_at(claim, sizes.values())}"
        )
    return "; ".join(parts)
