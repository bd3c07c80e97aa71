"""What ZigZag's ILP costs and gives, beside its rule without a solver (see docs/decisions/0015).

python -m benchmarks.zigzag             all tables
python -m benchmarks.zigzag equal       executable and ilp_free for equal batches, solved to the end
python -m benchmarks.zigzag weighted    solve times at several deterministic limits, batches unlike each other

Times are CPU milliseconds of one solve, model and replays included; the papers say 40 ms. Exit status 1 when
equal batches differ by more than 0.4 %, or the median of 32 layers at the default limit is above 40 ms.
"""

import sys
from dataclasses import dataclass
from random import Random
from time import process_time

from policies.zigzag_ilp import DETERMINISTIC_LIMIT, Solved, front_greedy, solve
from policies.zigzag_replay import best_effort, ilp_free, replay, stop_the_world
from serving.live import LiveView

TO_THE_END = 60.0
AGREE_PERCENT = 0.4
AIM_MS = 40.0
INSTANCES = 100
LIMITS = (DETERMINISTIC_LIMIT / 4, DETERMINISTIC_LIMIT, DETERMINISTIC_LIMIT * 8)
UNIT_NS = 1_000_000  # layers and loads are whole ns with hardly a common divisor, as measured times are


@dataclass(frozen=True, slots=True)
class Timed:
    """One instance, its solve and what that took."""

    view: LiveView
    solved: Solved
    cpu_ms: float

    def against_ilp_free(self) -> float:
        """Mean finish time of the replayed plan over that of the rule without a solver."""
        assert self.solved.schedule is not None
        return float(self.solved.schedule.mean_ns / ilp_free(self.view).mean_ns)


def timed(view: LiveView, limit: float) -> Timed:
    """Solve once."""
    started = process_time()
    solved = solve(view, "executable", limit)
    return Timed(view, solved, (process_time() - started) * 1e3)


def percentile(values: list[float], percent: float) -> float:
    """The value at rank ceil(percent % of n)."""
    ranked = sorted(values)
    return ranked[max(0, -(-int(len(ranked) * percent) // 100) - 1)]


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
        for load in (3, 4, 6, 8, 10):
            for batches in (12, 16, 20):
                view = LiveView(layers, load, (1,) * batches)
                one = timed(view, TO_THE_END)
                assert one.solved.status == "optimal" and one.solved.trusted
                off = (one.against_ilp_free() - 1) * 100
                worst = max(worst, abs(off))
                plans = (ilp_free(view), replay(view, front_greedy(view)), best_effort(view))
                means = [float(plan.mean_ns) for plan in (*plans, stop_the_world(view))]
                print(
                    f"{layers:6d} {load:4d} {batches:7d}   {float(one.solved.claimed_mean_ns):10.2f} "
                    + "".join(f"{mean:12.2f}" for mean in means)
                    + f"   {off:+.3f} %   {one.cpu_ms:5.1f} ms"
                )
    print(f"farthest apart: {worst:.3f} % (at most {AGREE_PERCENT:g} %)")
    return worst <= AGREE_PERCENT


def weighted() -> bool:
    """Print a line per size and limit; whether the median at the default limit is as short as promised."""
    kept = True
    for layers in (32, 80):
        views = instances(layers)
        solve(views[0])  # the import of the solver
        for limit in LIMITS:
            runs = [timed(view, limit) for view in views]
            times = [run.cpu_ms for run in runs]
            stopped = [run.solved.gap for run in runs if run.solved.status == "stopped"]
            ratios = [run.against_ilp_free() for run in runs]
            median, refused = percentile(times, 50), sum(not run.solved.trusted for run in runs)
            print(
                f"L {layers}, deterministic limit {limit:g}: CPU p50 {median:.1f} ms, p99 "
                f"{percentile(times, 99):.1f} ms; stopped {len(stopped)} of {len(runs)}, gap mean "
                f"{sum(stopped) / max(1, len(stopped)):.3%}, most {max(stopped, default=0.0):.3%}; refused "
                f"{refused}; mean finish over ilp_free {sum(ratios) / len(ratios):.4f} "
                f"({min(ratios):.4f} to {max(ratios):.4f})",
                flush=True,
            )
            if layers == 32 and limit == DETERMINISTIC_LIMIT:
                kept = median <= AIM_MS
    return kept


TABLES = {"equal": equal, "weighted": weighted}


def main(names: list[str]) -> None:
    """Print the tables."""
    for name in names:
        if name not in TABLES:
            sys.exit(f"benchmarks.zigzag: there is no table {name!r}: write {', '.join(TABLES)}")
    kept = [TABLES[name]() for name in names or TABLES]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
