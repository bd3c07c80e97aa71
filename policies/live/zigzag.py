"""Live schedulers: how the two instances of a pair share queued batches while one of them still loads."""

from policies.live.zigzag_ilp import DETERMINISTIC_LIMIT, FORMULATIONS, Formulation, check_solver, solve
from policies.live.zigzag_replay import best_effort, ilp_free, stop_the_world
from serving.protocols.live import LivePlan, LiveView


class IlpFree:
    """BlitzScale's ZigZag without a solver (OSDI '25, Fig. 16)."""

    ahead = solve_ns = 0

    def plan(self, view: LiveView) -> LivePlan:
        """The rule ``pull``; no split is fixed in advance."""
        return _pull_plan(view, "ZigZag without a solver")


class BestEffort:
    """At a batch's turn the target runs all layers loaded by then, at most half of the layers."""

    ahead, solve_ns = 1, 0

    def plan(self, view: LiveView) -> LivePlan:
        """A split of each batch's layers."""
        plan = best_effort(view)
        return LivePlan("split", plan.target_layers, plan.finish_ns, "best effort")


class StopTheWorld:
    """The new instance serves nothing until all its layers are loaded."""

    ahead = solve_ns = 0

    def plan(self, view: LiveView) -> LivePlan:
        """The rule ``stop``."""
        plan = stop_the_world(view)
        return LivePlan("stop", plan.target_layers, plan.finish_ns, "the target waits for all layers")


class Ilp:
    """ZigZag's integer program; falls back to the rule of ``IlpFree`` if its split is missing or refuted.

    A split is refuted if its replay finishes a batch later than claimed. formulation: ``executable``; or
    ``paper`` or ``paper_shifted``, whose splits fail in the replay. deterministic_limit: limit of the solve
    in the solver's own unit of work. refused: number of plans that were not used. ahead, solve_ns: the same
    as in serving.protocols.live.LiveScheduler. The duration of a solve is not measured, so that a run can be
    repeated (benchmarks/zigzag.py measures it).
    """

    def __init__(
        self,
        formulation: Formulation = "executable",
        deterministic_limit: float = DETERMINISTIC_LIMIT,
        ahead: int = 12,
        solve_ns: int = 40_000_000,
    ) -> None:
        if formulation not in FORMULATIONS:
            raise ValueError(
                f"the formulation {formulation!r} is unknown: write one of {', '.join(FORMULATIONS)}"
            )
        if not deterministic_limit > 0:
            raise ValueError("the ILP needs a deterministic limit above 0")
        check_solver()
        self.ahead, self.solve_ns = ahead, solve_ns
        self._formulation = formulation
        self._deterministic_limit = deterministic_limit
        self.refused = 0

    def plan(self, view: LiveView) -> LivePlan:
        """A split that replays as claimed, or the rule ``pull`` with the reason why there is none."""
        if not view.batches:
            return _pull_plan(view, "nothing waits")
        plan = solve(view, self._formulation, self._deterministic_limit)
        schedule = plan.schedule
        if schedule is not None and plan.trusted:
            status = "optimal" if plan.status == "optimal" else f"stopped at a gap of {plan.gap:.4f}"
            return LivePlan("split", schedule.target_layers, schedule.finish_ns, f"ILP {status}")
        if schedule is None:
            return _pull_plan(view, f"ILP {plan.status} without a plan")
        self.refused += 1
        return _pull_plan(
            view,
            f"ILP refused: claims a mean of {float(plan.claimed_mean_ns):.0f} ns, "
            f"replays {float(schedule.mean_ns):.0f} ns",
            refused=True,
        )


def _pull_plan(view: LiveView, reason: str, refused: bool = False) -> LivePlan:
    plan = ilp_free(view)
    return LivePlan("pull", plan.target_layers, plan.finish_ns, reason, refused)
