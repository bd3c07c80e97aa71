"""Figure 22: how much of the network loading parameters over it takes, beside a system that loads locally."""

from collections.abc import Sequence
from typing import Final

from experiments.blitzscale.set_ups import BLITZ, case, workloads
from experiments.common.compare import joined, kept, measured
from experiments.common.figure import Figure, Row
from experiments.common.moved import moved, moved_alone
from experiments.common.outcomes import NETWORK_BYTES, NETWORK_MEAN, Outcome, Outcomes
from experiments.common.paired import difference_of, mean_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import at_most, judged_over

# The paper gives no number; this is our reading of the word.
NEGLIGIBLE: Final = 0.01
_PAPER: Final = at_most(NEGLIGIBLE, "negligible (read as at most 1 point)", "paper_direction")
# Figure 3 e/f: the OSDI text says at most 7.4 % and also that more than 40 % is free, version 1 14.4 %.
_IN_USE: Final = at_most(0.60, "more than 40 % free (elsewhere: at most 7.4 %, 14.4 %)", "paper_number")


def cases() -> tuple[Case, ...]:
    """Every workload with loads over the network, and with loads from each host's own memory."""
    return tuple(case(set_up, name) for set_up in workloads() for name in (BLITZ, "allcache"))


def fig22(outcomes: Outcomes) -> Figure:
    """Extra mean use in points, and mean use of all NICs."""
    rows = [row for set_up in workloads() for row in _rows(outcomes, set_up)]
    return Figure("fig22", "Figure 22: extra network use of scaling", tuple(rows))


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[Row]:
    ours, local = case(set_up, BLITZ), case(set_up, "allcache")
    name = f"{set_up.name}: extra mean use of the network"
    return [
        _extra(outcomes, name, ours, local),
        _use(outcomes, f"{set_up.name}: mean use, {BLITZ}", ours),
    ]


def _extra(outcomes: Outcomes, name: str, ours: Case, local: Case) -> Row:
    values = [NETWORK_MEAN.of(outcomes.of(one)) for one in (ours, local)]
    why_not = outcomes.why_not(ours, local)
    if why_not or not values[0] or not values[1]:
        lacks = f"summary.json of a run has no {NETWORK_MEAN.where}"
        return _PAPER.not_comparable(name, ours.set_up.stand_in, why_not or lacks)
    found = difference_of(values[0], values[1])
    why = joined(
        f"mean use {mean_of(values[0]).value:.2%} against {mean_of(values[1]).value:.2%}",
        measured(outcomes, NETWORK_BYTES, ours, local),
    )
    row = judged_over(name, _PAPER, found, ours.set_up.stand_in, why, _points)
    extra = [one - two for one, two in zip(values[0], values[1], strict=True)]
    return kept(row, ours, extra, *moved(outcomes, _PAPER, _difference, ours, local))


def _use(outcomes: Outcomes, name: str, ours: Case) -> Row:
    """That one link is full while a load crosses it says nothing: all of them, on average."""
    claim, values, why_not = _IN_USE, NETWORK_MEAN.of(outcomes.of(ours)), outcomes.why_not(ours)
    if why_not or not values:
        lacks = f"summary.json of a run has no {NETWORK_MEAN.where}"
        return claim.not_comparable(name, ours.set_up.stand_in, why_not or lacks)
    why = measured(outcomes, NETWORK_MEAN, ours)
    row = judged_over(name, claim, mean_of(values), ours.set_up.stand_in, why, lambda share: f"{share:.1%}")
    return kept(row, ours, values, *moved_alone(outcomes, claim, NETWORK_MEAN, ours))


def _difference(runs: Sequence[Sequence[Outcome]]) -> float | None:
    one, two = (NETWORK_MEAN.of(part) for part in runs)
    return None if not one or not two else difference_of(one, two).value


def _points(share: float) -> str:
    return f"{100 * share:.2f} points"
