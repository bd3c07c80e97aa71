"""What ZigZag's ILP costs and gives, beside its rule without a solver (see docs/contributing/decisions/0015).

python -m benchmarks.zigzag             all tables
python -m benchmarks.zigzag equal       executable and ilp_free for equal batches, solved to the end
python -m benchmarks.zigzag weighted    solve times at several deterministic limits, batches unlike each other

Times are CPU milliseconds and raw of one solve, model and replays included; the papers say 40 ms. Exit status
1: equal batches differ by more than 0.4 %, or the median of 32 layers at the default limit is above 40 ms.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from time import process_time

from benchmarks.command import among, command
from benchmarks.raw import Solves, percentile, raw_timeout_s
from policies.live.zigzag_ilp import DETERMINISTIC_LIMIT, Solved, front_greedy, solve
from policies.live.zigzag_replay import best_effort, ilp_free, replay, stop_the_world
from serving.protocols.live import LiveView

TO_THE_END = 60.0
AGREE_PERCENT = 0.4
AIM_MS = 40.0
INSTANCES = 100
BETWEEN = 25
LIMITS = (DETERMINISTIC_LIMIT / 4, DETERMINISTIC_LIMIT, DETERMINISTIC_LIMIT * 8)
UNIT_NS = 1_000_000  # layers and loads are whole ns with hardly a common divisor, as measured times are


@dataclass(frozen=True, slots=True)
class Timed:
    """One instance, its solve and what that took."""

    view: LiveView
    solved: Solved
    cpu_s: float

    def against_ilp_free(self) -> float:
        """Mean finish time of the replayed plan over that of the rule without a solver."""
        assert self.solved.schedule is not None
        return float(self.solved.schedule.mean_ns / ilp_free(self.view).mean_ns)


def timed(view: LiveView, limit: float) -> Timed:
    """Solve once."""
    started = process_time()
    solved = solve(view, "executable", limit)
    return Timed(view, solved, process_time() - started)


def all_timed(views: Iterable[LiveView], limit: float) -> tuple[list[Timed], Solves]:
    """Solve each once; the unit is taken before, now and then between, and after."""
    runs, raw_s = list[Timed](), [raw_timeout_s()]
    for number, view in enumerate(views, start=1):
        runs.append(timed(view, limit))
        if number % BETWEEN == 0:
            raw_s.append(raw_timeout_s())
    return runs, Solves(tuple(run.cpu_s for run in runs), (*raw_s, raw_timeout_s()))


def instances(layers: int) -> list[LiveView]:
    """12 to 20 batches of 0.5 to 2 units per layer; a load takes 3 to 10 units. The same on every machine."""
    drawn = Random(f"zigzag {layers}")
    return [
        LiveView(
            layers,
            drawn.randint(3 * UNIT_NS, 10 * UNIT_NS),
            tuple(drawn.randint(UNIT_NS // 2, 2 * UNIT_NS) for _ in range(drawn.randint(12, 20))),
        )
        for _ in range(INSTANCES)
    ]


def equal() -> bool:
    """Print the table of equal batches; whether all agree."""
    print("layers load batches   executable    ilp_free      greedy best_effort        stop   off ilp_free")
    worst = 0.0
    solve(LiveView(7, 6, (1,)))  # the import of the solver
    for layers in (32, 80):
        views = [LiveView(layers, load, (1,) * count) for load in (3, 4, 6, 8, 10) for count in (12, 16, 20)]
        runs, solves = all_timed(views, TO_THE_END)
        for run in runs:
            assert run.solved.status == "optimal" and run.solved.trusted
            worst = max(worst, abs(print_equal(run)))
        print(f"{layers} layers, CPU: {solves.text()}", flush=True)
    print(f"farthest apart: {worst:.3f} % (at most {AGREE_PERCENT:g} %)")
    return worst <= AGREE_PERCENT


def print_equal(timed_solve: Timed) -> float:
    """One line; how far the plan is from the rule without a solver, in percent."""
    view, off = timed_solve.view, (timed_solve.against_ilp_free() - 1) * 100
    plans = (ilp_free(view), replay(view, front_greedy(view)), best_effort(view), stop_the_world(view))
    print(
        f"{view.layers:6d} {view.layer_load_ns:4d} {view.batches:7d}   "
        f"{float(timed_solve.solved.claimed_mean_ns):10.2f} "
        + "".join(f"{float(plan.mean_ns):12.2f}" for plan in plans)
        + f"   {off:+.3f} %   {timed_solve.cpu_s * 1e3:5.1f} ms"
    )
    return off


def weighted() -> bool:
    """Print a line per size and limit; whether the median at the default limit is as short as promised."""
    promised = True
    for layers in (32, 80):
        views = instances(layers)
        solve(views[0])  # the import of the solver
        for limit in LIMITS:
            runs, solves = all_timed(views, limit)
            stopped = [run.solved.gap for run in runs if run.solved.status == "stopped"]
            ratios = [run.against_ilp_free() for run in runs]
            refused = sum(not run.solved.trusted for run in runs)
            print(
                f"L {layers}, deterministic limit {limit:g}: CPU {solves.text()}; "
                f"stopped {len(stopped)} of {len(runs)}, gap mean "
                f"{sum(stopped) / max(1, len(stopped)):.3%}, most {max(stopped, default=0.0):.3%}; refused "
                f"{refused}; mean finish over ilp_free {sum(ratios) / len(ratios):.4f} "
                f"({min(ratios):.4f} to {max(ratios):.4f})",
                flush=True,
            )
            if layers == 32 and limit == DETERMINISTIC_LIMIT:
                promised = percentile(solves.cpu_s, 50) * 1e3 <= AIM_MS
    return promised


TABLES = {"equal": equal, "weighted": weighted}


def main(names: list[str]) -> int:
    """Print the tables; 1 when a promise is broken."""
    among(names, TABLES, "table")
    promises = [TABLES[name]() for name in names or TABLES]
    return 0 if all(promises) else 1


if __name__ == "__main__":
    command("benchmarks.zigzag", __doc__, main)
