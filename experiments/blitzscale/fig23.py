"""Figure 23: what deciding costs. CPU time of this machine: of planning alone, and of decisions in runs."""

from collections.abc import Callable, Sequence
from time import process_time
from typing import Final

from experiments.blitzscale.set_ups import BLITZ, case_of, workloads
from experiments.common.compare import judged_row, measured, pointed
from experiments.common.figure import Figure, FigureRow, Key
from experiments.common.outcomes import DECISION_P99, LOAD_TIME, Outcomes, RunOutcome
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, at_most, judged
from policies.multicast.planner import MulticastPlanner
from serving.protocols.planning import Plan, Port, ScaleUp, Source, Target

# The paper gives no number; this is our reading of the word.
NEGLIGIBLE: Final = 0.01
_PAPER: Final[Claim] = at_most(NEGLIGIBLE, "negligible (read as at most 1 % of a load)", "paper_direction")
_LOAD_S: Final = 1.2  # BlitzScale (OSDI 2025), Figure 21: all of six 24B instances
_NIC_BYTES_PER_S: Final = 12_500_000_000
_REPEATS: Final = 9
KEY: Final[Key] = ("CPU ms", "Figure 23")


def cases() -> tuple[Case, ...]:
    """The elastic system in every workload."""
    return tuple(case_of(set_up, BLITZ) for set_up in workloads())


def fig23(outcomes: Outcomes) -> Figure:
    """Plans of two sizes, then decisions."""
    rows = [
        _planning_row("plan for six 24B instances of 2 GPUs", six),
        _planning_row("plan for 1,024 GPUs", many),
    ]
    rows += [_decision_row(outcomes, case) for case in cases()]
    inputs = ("CPU times of the machine this ran on, the best of several plans",)
    plans = {row.name: row.ours for row in rows[:2]}
    return Figure(
        "fig23", "Figure 23: time of the control plane", tuple(rows), inputs=inputs,
        sweeps={KEY: {"told": "CPU time of one plan on this machine", "points": plans}},
    )  # fmt: skip


def six() -> ScaleUp:
    """Two instances of two GPUs on host 0 hold the model, six on hosts 1 to 3 of cluster A want it."""
    return _scale_up(gpus=32, size=2, holders=(0, 1), targets=(4, 5, 8, 9, 12, 13))


def many() -> ScaleUp:
    """8 of 1,024 single-GPU instances hold the model, all others want it."""
    return _scale_up(gpus=1024, size=1, holders=range(8), targets=range(8, 1024))


def planned_ms(wanted: ScaleUp) -> tuple[float, Plan]:
    """(CPU ms of one plan, the best of several; the plan)."""
    best_s = float("inf")
    for _ in range(_REPEATS):
        started = process_time()
        plan = MulticastPlanner().plan(wanted)
        best_s = min(best_s, process_time() - started)
    return best_s * 1e3, plan


def _planning_row(name: str, wanted: Callable[[], ScaleUp]) -> FigureRow:
    ms, plan = planned_ms(wanted())
    why = (
        f"{len(plan.replicas)} instances in {len(plan.edges)} edges; {ms / 1e3 / _LOAD_S:.3%} of {_LOAD_S} s"
    )
    row = judged(name, _PAPER, ms / 1e3 / _LOAD_S, f"{ms:.3f} ms", why=why)
    return pointed(row, KEY)


def _decision_row(outcomes: Outcomes, case: Case) -> FigureRow:
    name, why = f"{case.set_up.name}: P99 of a decision over a load", measured(outcomes, DECISION_P99, case)
    return judged_row(
        outcomes, name, _PAPER, (case,), _shares, why=why, write=lambda share: f"{share:.3%}", moves=False
    )


def _shares(runs: Sequence[Sequence[RunOutcome]]) -> list[float] | str:
    decisions, loads = DECISION_P99.of(runs[0]), LOAD_TIME.of(runs[0])
    if not decisions or not loads:
        return f"summary.json of a run has no {DECISION_P99.where} or no {LOAD_TIME.where}"
    return [ms / 1e3 / load_s for ms, load_s in zip(decisions, loads, strict=True)]


def _scale_up(
    gpus: int, size: int, holders: "range | tuple[int, ...]", targets: "range | tuple[int, ...]"
) -> ScaleUp:
    """Instances of ``size`` GPUs side by side on hosts of 8, all hosts on one leaf."""
    ports = [Port(gpu, gpu // 8, 0, gpu, _NIC_BYTES_PER_S) for gpu in range(gpus)]
    seats = [tuple(ports[first : first + size]) for first in range(0, gpus, size)]
    sources = tuple(Source(("replica", holder), seats[holder]) for holder in holders)
    return ScaleUp(sources, tuple(Target(target, seats[target]) for target in targets), len(targets), size)
