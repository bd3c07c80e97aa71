"""Figure 22: how much of the network loading parameters over it takes, beside a system that loads locally."""

from collections.abc import Sequence
from typing import Final

from experiments.blitzscale.set_ups import BLITZ, case_of, workloads
from experiments.common.compare import joined, judged_row, measured, values_of
from experiments.common.figure import Figure, FigureRow
from experiments.common.outcomes import NETWORK_BYTES, NETWORK_MEAN, Outcomes, RunOutcome
from experiments.common.paired import mean_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import at_most

# The paper gives no number; this is our reading of the word.
NEGLIGIBLE: Final = 0.01
_PAPER: Final = at_most(NEGLIGIBLE, "negligible (read as at most 1 point)", "paper_direction")
# Figure 3 e/f: the OSDI text says at most 7.4 % and also that more than 40 % is free, version 1 14.4 %.
_IN_USE: Final = at_most(0.60, "more than 40 % free (elsewhere: at most 7.4 %, 14.4 %)", "paper_number")


def cases() -> tuple[Case, ...]:
    """Every workload with loads over the network, and with loads from each host's own memory."""
    return tuple(case_of(set_up, name) for set_up in workloads() for name in (BLITZ, "allcache"))


def fig22(outcomes: Outcomes) -> Figure:
    """Extra mean use in points, and mean use of all NICs."""
    rows = [row for set_up in workloads() for row in _rows(outcomes, set_up)]
    return Figure("fig22", "Figure 22: extra network use of scaling", tuple(rows))


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    ours, local = case_of(set_up, BLITZ), case_of(set_up, "allcache")
    name = f"{set_up.name}: extra mean use of the network"
    return [_extra(outcomes, name, ours, local), _use(outcomes, f"{set_up.name}: mean use, {BLITZ}", ours)]


def _extra(outcomes: Outcomes, name: str, ours: Case, local: Case) -> FigureRow:
    def why(_: list[float]) -> str:
        means = [mean_of(NETWORK_MEAN.of(outcomes.of(case)) or [0.0]).value for case in (ours, local)]
        return joined(
            f"mean use {means[0]:.2%} against {means[1]:.2%}", measured(outcomes, NETWORK_BYTES, ours, local)
        )

    return judged_row(outcomes, name, _PAPER, (ours, local), _differences, why=why, write=_points)


def _use(outcomes: Outcomes, name: str, ours: Case) -> FigureRow:
    """Compare the mean use of all links; a single link is always full while a load crosses it."""
    return judged_row(
        outcomes,
        name,
        _IN_USE,
        (ours,),
        values_of(NETWORK_MEAN),
        why=measured(outcomes, NETWORK_MEAN, ours),
        write=lambda share: f"{share:.1%}",
    )


def _differences(runs: Sequence[Sequence[RunOutcome]]) -> list[float] | str:
    ours, local = (NETWORK_MEAN.of(part) for part in runs)
    if not ours or not local:
        return f"summary.json of a run has no {NETWORK_MEAN.where}"
    return [our_share - other for our_share, other in zip(ours, local, strict=True)]


def _points(share: float) -> str:
    return f"{100 * share:.2f} points"
