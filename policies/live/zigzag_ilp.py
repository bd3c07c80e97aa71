"""ZigZag's split of layers as an integer program (BlitzScale, OSDI '25, Eq. 1), checked by its replay.

T_i: layers of batch i on the target, S_i = L - T_i on the source, w_i: time of one layer of the batch,
Time_l: time to load one layer. Claimed finish of batch i: w_1*T_1 + sum of w_j*S_j over j <= i; their mean is
minimised. C2: the target's layers up to batch i take no longer than the source's before i. C3 concerns
loading and has three formulations. T_1 is 1, since no second layer is loaded in time, and is part of every
claim. As printed T_1 is free and left out, and the optimum is a schedule that cannot be executed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from math import gcd
from typing import Any, Literal, get_args

from policies.live.zigzag_replay import Schedule, replay
from serving.protocols.live import LiveView
from serving.vocabulary.errors import UserError

Formulation = Literal["executable", "paper", "paper_shifted"]
Status = Literal["optimal", "stopped", "infeasible"]
FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)

DETERMINISTIC_LIMIT = 0.0025  # benchmarks/zigzag.py: the median solve stays below the papers' 40 ms
SEED = 1


@dataclass(frozen=True, slots=True)
class Solved:
    """The result of a solve; ``schedule`` is None if the solver found no plan.

    status: ``optimal`` (of the formulation), ``stopped`` at its limit, ``infeasible``. claimed_ns: finish
    times according to the formulation. schedule: the same split replayed. gap: how far the claimed mean may
    be above the formulation's least, as a share of it. deterministic_time: how much of its limit the solve
    used.
    """

    status: Status
    gap: float
    deterministic_time: float
    claimed_ns: tuple[int, ...] = ()
    schedule: Schedule | None = None

    @property
    def claimed_mean_ns(self) -> Fraction:
        """The mean finish time that the formulation promises."""
        return Fraction(sum(self.claimed_ns), len(self.claimed_ns))

    @property
    def trusted(self) -> bool:
        """No batch finishes later in the replay than claimed."""
        return self.schedule is not None and _keeps(self.schedule, self.claimed_ns)


def claimed_finish_ns(view: LiveView, split: Sequence[int]) -> tuple[int, ...]:
    """Finish times if the source, once begun, never waits for the target."""
    total_ns, times_ns = view.batch_layer_ns[0] * split[0], []
    for layer_ns, on_target in zip(view.batch_layer_ns, split):
        total_ns += layer_ns * (view.layers - on_target)
        times_ns.append(total_ns)
    return tuple(times_ns)


def front_greedy(view: LiveView) -> tuple[int, ...]:
    """A split within ``executable``: for each batch in turn, as many layers on the target as it allows."""
    layer_ns, after_load_ns = view.batch_layer_ns, _after_load_ns(view)
    split, target_ns, source_ns = [1], layer_ns[0], layer_ns[0] * (view.layers - 1)
    for batch in range(1, view.batches):
        by_load = (source_ns - after_load_ns[batch]) // view.layer_load_ns + view.loaded
        by_target = (source_ns - target_ns) // layer_ns[batch]
        split.append(min(max(by_load, view.loaded), by_target, view.layers))
        target_ns += layer_ns[batch] * split[-1]
        source_ns += layer_ns[batch] * (view.layers - split[-1])
    return tuple(split)


def solve(
    view: LiveView,
    formulation: Formulation = "executable",
    deterministic_limit: float = DETERMINISTIC_LIMIT,
) -> Solved:
    """The best split of the formulation by CP-SAT: one worker, a fixed seed, no wall time.

    deterministic_limit: in the solver's own count of its work, so that every machine stops at the same plan.
    A stopped solve returns the split that replays best among those the solver met; with ``executable`` the
    greedy split is always among them. Claims assume that all batches are present at time 0; if one is not,
    the replay shows it.
    """
    cp_model = _cp_model()
    model, split = _model(cp_model.CpModel(), view, formulation)
    met: list[tuple[int, ...]] = []
    if formulation == "executable":
        met.append(front_greedy(view))
        for layers, hint in zip(split, met[0]):
            model.add_hint(layers, hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = SEED
    solver.parameters.cp_model_presolve = False  # presolve takes longer than it saves on 20 variables
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = deterministic_limit
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C ends the process without a word from then on
    code = solver.solve(model, _collector(cp_model, split, met))
    spent = float(solver.response_proto.deterministic_time)
    if code == cp_model.INFEASIBLE:
        return Solved("infeasible", 0.0, spent)
    if code == cp_model.OPTIMAL:
        best = tuple(solver.value(layers) for layers in split)
        return Solved("optimal", 0.0, spent, claimed_finish_ns(view, best), replay(view, best))
    return stopped_with(view, met, solver.best_objective_bound * _unit_ns(view), spent)


def stopped_with(
    view: LiveView, met: Sequence[tuple[int, ...]], saved_at_most_ns: float, spent: float
) -> Solved:
    """The best replay among the splits met that keep their claims; if none does, among all splits met.

    saved_at_most_ns: how much layers on the target can take off the sum of all claims, before w_1*T_1 is
    added to each.
    """
    if not met:
        return Solved("stopped", float("inf"), spent)
    plans = [(claimed_finish_ns(view, split), replay(view, split)) for split in dict.fromkeys(met)]
    feasible = [plan for plan in plans if _keeps(plan[1], plan[0])]
    claimed_ns, schedule = min(feasible or plans, key=lambda plan: plan[1].mean_ns)
    nothing_saved_ns = sum(claimed_finish_ns(view, [0] * view.batches))
    least_ns = nothing_saved_ns + view.batches * view.batch_layer_ns[0] - saved_at_most_ns
    return Solved("stopped", max(0.0, sum(claimed_ns) / least_ns - 1), spent, claimed_ns, schedule)


def _keeps(schedule: Schedule, claimed_ns: Sequence[int]) -> bool:
    return all(really <= claimed for really, claimed in zip(schedule.finish_ns, claimed_ns))


def _model(model: Any, view: LiveView, formulation: Formulation) -> tuple[Any, list[Any]]:
    """The program over T_i; times are in the largest unit in which all are whole numbers."""
    unit_ns = _unit_ns(view)
    weights = [layer_ns // unit_ns for layer_ns in view.batch_layer_ns]
    split = [model.new_int_var(0, view.layers, f"T_{batch + 1}") for batch in range(view.batches)]
    model.add(split[0] == 1)
    on_target = [weight * layers for weight, layers in zip(weights, split)]
    on_source = [weight * (view.layers - layers) for weight, layers in zip(weights, split)]
    for batch in range(1, view.batches):
        model.add(sum(on_target[: batch + 1]) <= sum(on_source[:batch]))  # C2
    if formulation == "executable":
        _add_executable(model, view, split, on_source)
    elif formulation in FORMULATIONS:
        _add_printed(model, view, split, on_target, shift=1 if formulation == "paper_shifted" else 0)
    else:
        raise ValueError(
            f"the formulation {formulation!r} is unknown: write one of {', '.join(FORMULATIONS)}"
        )
    model.maximize(sum((view.batches - batch) * layers for batch, layers in enumerate(on_target)))
    return model, split


def _add_executable(model: Any, view: LiveView, split: Sequence[Any], on_source: Sequence[Any]) -> None:
    """C3: the target has loaded and run its last layer before the source starts the batch."""
    unit_ns = _unit_ns(view)
    load, after_load = view.layer_load_ns // unit_ns, [ns // unit_ns for ns in _after_load_ns(view)]
    sure = view.batch_layer_ns[0] // unit_ns * (view.layers - 1)  # the source's part of batch 1
    for batch in range(1, view.batches):
        layers = split[batch]
        c3 = model.add(load * (layers - view.loaded) + after_load[batch] <= sum(on_source[:batch]))
        if after_load[batch] > sure:  # otherwise it could forbid layers that are loaded from the start
            waits = model.new_bool_var(f"waits_{batch + 1}")
            model.add(layers <= view.loaded).only_enforce_if(~waits)
            c3.only_enforce_if(waits)


def _add_printed(
    model: Any, view: LiveView, split: Sequence[Any], on_target: Sequence[Any], shift: int
) -> None:
    """C3 as the paper prints it (shift 0) or with the first layer loaded at time 0 (shift 1)."""
    unit_ns = _unit_ns(view)
    load, weights = view.layer_load_ns // unit_ns, [ns // unit_ns for ns in view.batch_layer_ns]
    for batch in range(1, view.batches):
        ahead = sum(weights[batch:]) * (split[batch] - 1)
        model.add(load * (split[batch] - shift) <= sum(on_target[:batch]) + ahead)


def _after_load_ns(view: LiveView) -> list[int]:
    """By batch: the work that must fit between the load of its last layer and the end of the source's layers.

    This is the layer itself and a layer of a later batch that has just begun. The source begins one layer of
    batch 1 after time 0. With equal batches and Time_l a multiple of their layer time, it is 0 as in Eq. 1.
    """
    unit_ns, layer_ns = _unit_ns(view), view.batch_layer_ns
    rows, longest_later_ns = [], unit_ns
    for own_ns in reversed(layer_ns):
        rows.append(own_ns + longest_later_ns - unit_ns - layer_ns[0])
        longest_later_ns = max(longest_later_ns, own_ns)
    return rows[::-1]


def _unit_ns(view: LiveView) -> int:
    return gcd(view.layer_load_ns, *view.batch_layer_ns)


def check_solver() -> None:
    """Raise UserError if OR-tools is not installed: before a run, not at its first plan."""
    if find_spec("ortools") is None:
        raise UserError(
            "the ILP of ZigZag needs OR-tools: pip install 'servetwin[plan]', or choose system/live=ilp_free"
        )


def _cp_model() -> Any:
    check_solver()
    from ortools.sat.python import cp_model

    return cp_model


def _collector(cp_model: Any, split: Sequence[Any], met: list[tuple[int, ...]]) -> Any:
    """A solver callback that appends every split the solver meets to ``met``."""

    class Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            met.append(tuple(self.value(layers) for layers in split))

    return Collector()
