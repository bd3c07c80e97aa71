"""How far a mean over models moves along the sweeps of their set-ups: what explains a row that is missed."""

from collections.abc import Callable, Mapping, Sequence

from experiments.common.figure import Key
from experiments.common.outcomes import Outcome, Outcomes
from experiments.common.set_up import SetUp
from experiments.common.verdict import Claim
from servetwin.report.number_text import number

Place = tuple[int, str]
"""(number of the place, system)."""
Runs = dict[Place, tuple[Outcome, ...]]
Mean = Callable[[Mapping[Place, tuple[Outcome, ...]], Sequence[int]], dict[str, float] | None]


def along_sweeps(
    outcomes: Outcomes, set_ups: Sequence[SetUp], names: Sequence[str]
) -> dict[str, dict[str, tuple[Runs, list[int]]]]:
    """kind -> value -> (runs, places that have the sweep), where every such place has these systems there."""
    at = {set_up.name: place for place, set_up in enumerate(set_ups)}
    found: dict[str, dict[str, tuple[Runs, list[int]]]] = {}
    for sweep in outcomes.sweeps:
        place = at.get(sweep.subject)
        if place is None:
            continue
        for value, cases in sweep.points:
            runs, places = found.setdefault(sweep.kind, {}).setdefault(value, ({}, []))
            there = {one.label: outcomes.of(one)[:1] for one in cases}
            if all(there.get(name) for name in names):
                places.append(place)
                runs |= {(place, name): there[name] for name in names}
    return found


def keys_of(outcomes: Outcomes, set_ups: Sequence[SetUp]) -> list[Key]:
    """The sweeps of these set-ups."""
    names = {one.name for one in set_ups}
    return [(sweep.kind, sweep.subject) for sweep in outcomes.sweeps if sweep.subject in names]


def ratio_moved(
    outcomes: Outcomes, claim: Claim, set_ups: Sequence[SetUp], mean: Mean, one: str, other: str
) -> str:
    """At every point the mean of one system over that of the other."""
    told = []
    for kind, points in along_sweeps(outcomes, set_ups, (one, other)).items():
        sizes = {
            value: found[one] / found[other]
            for value, (runs, places) in points.items()
            if places and (found := mean(runs, places)) and found[other] > 0
        }
        if sizes:
            near = sum(claim.verdict(size) == "in band" for size in sizes.values())
            each = ", ".join(f"{number(size)} ({value})" for value, size in sizes.items())
            told.append(f"by {kind} {each}, {near} of {len(sizes)} in band")
    return "; ".join(told)


def order_moved(outcomes: Outcomes, set_ups: Sequence[SetUp], mean: Mean, names: Sequence[str]) -> str:
    """The order at every point."""
    told = []
    for kind, points in along_sweeps(outcomes, set_ups, names).items():
        orders = {
            value: " < ".join(sorted(names, key=found.__getitem__))
            for value, (runs, places) in points.items()
            if places and (found := mean(runs, places))
        }
        if orders:
            told.append(f"by {kind} " + ", ".join(f"{order} ({value})" for value, order in orders.items()))
    return "; ".join(told)
